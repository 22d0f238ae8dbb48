/** Generations: what is held of a list, written page by page, each page one transaction. */
import { sql, type Kysely, type RawBuilder, type Transaction } from 'kysely';
import { FencedError } from '../../core/errors.ts';
import { formatInstant, type Micros } from '../../core/time.ts';
import type { MirrorSchema } from '../../postgres/schema.ts';
import { seenRowTwice } from '../guards.ts';
import type { ListedRow, ListName } from '../ports.ts';
import type { ResumePoint } from '../resume-point.ts';

type Db = Kysely<MirrorSchema>;
type Tx = Transaction<MirrorSchema>;

export interface Generation {
  readonly generationId: bigint;
  readonly list: ListName;
  readonly epoch: number;
  readonly kind: 'current' | 'audit';
  readonly sequence: bigint;
  readonly resumePoint: unknown;
  readonly lastPos: bigint;
  /** Of the list, repeated ones counted. */
  readonly rows: bigint;
  readonly claimedPos: bigint;
  readonly headHeight: string | null;
  readonly isAppendOnly: boolean;
  readonly isClaimed: boolean;
  /** RFC 3339. */
  readonly auditedAt: string | null;
}

export interface Lease {
  readonly list: ListName;
  readonly token: string;
  /** When the request that took it was sent (`performance.now()`). */
  readonly takenAtMs: number;
}

export interface PageCommit {
  readonly rows: readonly ListedRow[];
  readonly resumePoint: ResumePoint;
  readonly height: bigint | undefined;
  readonly time: Micros | undefined;
}

const COLUMNS = sql`generation_id as "generationId", list, epoch, kind, sequence, resume_point as "resumePoint",
  last_pos as "lastPos", rows, claimed_pos as "claimedPos", head_height as "headHeight",
  is_append_only as "isAppendOnly", claimed_at is not null as "isClaimed", audited_at as "auditedAt"`;

export async function readGenerations(db: Db, list: ListName, epoch: number): Promise<Generation[]> {
  const { rows } = await sql<Generation>`
    select ${COLUMNS} from mirror.generations where list = ${list} and epoch = ${epoch}`.execute(db);
  return rows;
}

/** An abandoned audit is of no use beside a new one. Safe to repeat: the new one has no page yet. */
export async function beginGeneration(
  tx: Tx,
  wanted: Pick<Generation, 'list' | 'epoch' | 'kind'>,
  runId: string,
): Promise<Generation> {
  const { list, epoch, kind } = wanted;
  if (kind === 'audit') await dropAudit(tx, list);
  const { rows } = await sql<Generation>`
    insert into mirror.generations as held (list, epoch, kind, run_id) values (${list}, ${epoch}, ${kind}, ${runId})
    on conflict (list, epoch, kind) do update set run_id = excluded.run_id where held.sequence = 0
    returning ${COLUMNS}`.execute(tx);
  return theOnly(rows);
}

export async function dropAudit(tx: Tx, list: ListName): Promise<void> {
  await sql`delete from mirror.generations where list = ${list} and kind = 'audit'`.execute(tx);
}

/** Locks the lease's row, which makes this worker the only one that commits. @throws FencedError */
export async function fence(tx: Tx, { list, token }: Lease): Promise<void> {
  const { rows } =
    await sql`select from mirror.list_leases where list = ${list} and token = ${token} for update`.execute(
      tx,
    );
  if (rows.length === 0) throw new FencedError(`the sync of ${list}`);
}

/**
 * Appends a page. @returns false, and nothing is written, where the generation has gone on since the resume
 * point that the page builds on
 * @throws DoubtSeen `ROW_TWICE` where a party is held already
 */
export async function appendPage(
  tx: Tx,
  lease: Lease,
  generation: Pick<Generation, 'generationId' | 'list' | 'kind'>,
  page: PageCommit,
): Promise<boolean> {
  const { resumePoint, rows, height, time } = page;
  const { keys, copies, extras } = columnsOf(rows);
  const { rows: found } = await sql<{ base: bigint; epoch: number }>`
    with lease as (
      select from mirror.list_leases where list = ${lease.list} and token = ${lease.token} for update)
    update mirror.generations g
    set sequence = ${resumePoint.sequence}::bigint, last_pos = last_pos + ${keys.length}::int,
      rows = rows + ${rows.length}::int, pages = pages + 1, resume_point = ${JSON.stringify(resumePoint)}::jsonb,
      head_height = greatest(head_height, ${height ?? null}::numeric),
      head_time = greatest(head_time, ${time === undefined ? null : formatInstant(time)}::timestamptz)
    from lease
    where generation_id = ${generation.generationId} and sequence = ${resumePoint.sequence}::bigint - 1
    returning last_pos - ${keys.length}::int as base, epoch`.execute(tx);
  const [counted] = found;
  if (counted === undefined) {
    await fence(tx, lease);
    return false;
  }
  if (keys.length === 0) return true;
  const from = sql`from unnest(${keys}::text[], ${copies}::int[], ${extras}::jsonb[])
    with ordinality as row (key, copies, extra, n)`;
  const { numAffectedRows } = await sql`${insertRows(generation, counted, from)}`.execute(tx);
  if (numAffectedRows !== BigInt(keys.length)) throw seenRowTwice(generation.list, keys);
  return true;
}

function insertRows(
  { generationId, list, kind }: Pick<Generation, 'generationId' | 'list' | 'kind'>,
  { base, epoch }: { readonly base: bigint; readonly epoch: number },
  from: RawBuilder<unknown>,
): RawBuilder<unknown> {
  // A party is listed once. A checkpoint may be listed several times, next to each other.
  if (kind === 'audit') {
    return sql`insert into mirror.audit_rows as held (generation_id, pos, key, copies, extra)
      select ${generationId}::bigint, ${base}::bigint + n, key, copies, extra ${from}
      on conflict (generation_id, key) do ${
        list === 'parties' ? sql`nothing` : sql`update set copies = held.copies + excluded.copies`
      }`;
  }
  if (list === 'parties') {
    return sql`insert into mirror.parties as held (party_id, first_epoch, epoch, pos, extra)
      select key, ${epoch}::int, ${epoch}::int, ${base}::bigint + n, extra ${from}
      on conflict (party_id) do update set epoch = excluded.epoch, pos = excluded.pos, gone_since = null,
        last_seen_at = clock_timestamp(), extra = coalesce(excluded.extra, held.extra)
      where held.pos is null or held.gone_since is not null or held.epoch is distinct from excluded.epoch`;
  }
  return sql`insert into mirror.checkpoints as held (epoch, at_block, hash, block_hash, copies, pos, extra)
    select ${epoch}::int, ${CHECKPOINT_FIELDS}, copies, ${base}::bigint + n, extra ${from}
    on conflict (epoch, at_block, hash, block_hash) do update set gone_since = null, extra = coalesce(excluded.extra, held.extra),
      pos = case when held.gone_since is null then held.pos else excluded.pos end,
      copies = case when held.gone_since is null then held.copies else 0 end + excluded.copies`;
}

/** A key of a checkpoint back into its fields. */
export const CHECKPOINT_FIELDS = sql.raw(
  [
    `split_part(key, '/', 1)::numeric`,
    ...[2, 3].map((part) => `replace(replace(split_part(key, '/', ${part}), '%2F', '/'), '%25', '%')`),
  ].join(', '),
);

/** And its fields into its key. */
const CHECKPOINT_KEY = sql.raw(
  `at_block || '/' || replace(replace(hash, '%', '%25'), '/', '%2F') || '/' || replace(replace(block_hash, '%', '%25'), '/', '%2F')`,
);

export function tableOf(list: ListName): RawBuilder<unknown> {
  return list === 'parties' ? sql`mirror.parties` : sql`mirror.checkpoints`;
}

export function keyOf(list: ListName): RawBuilder<unknown> {
  return list === 'parties' ? sql`party_id` : CHECKPOINT_KEY;
}

function columnsOf(rows: readonly ListedRow[]): {
  keys: string[];
  copies: number[];
  extras: (string | null)[];
} {
  const distinct = new Map<string, { copies: number; extra: ListedRow['extra'] }>();
  for (const { key, extra } of rows) {
    const known = distinct.get(key);
    if (known === undefined) distinct.set(key, { copies: 1, extra });
    else known.copies += 1;
  }
  const all = [...distinct.values()];
  return {
    keys: [...distinct.keys()],
    copies: all.map(({ copies }) => copies),
    extras: all.map(({ extra }) => (extra === undefined ? null : JSON.stringify(extra))),
  };
}

/** Rows of these keys that are held, with their places: one look into an index for each. */
function heldRows(
  { generationId, list, kind, epoch }: Generation,
  keys: readonly string[],
): RawBuilder<unknown> {
  const asked = sql`unnest(${[...keys]}::text[]) as asked (key)`;
  if (kind === 'audit') {
    return sql`select key, held.pos, held.copies from ${asked}, lateral (
      select pos, copies from mirror.audit_rows where generation_id = ${generationId} and key = asked.key limit 1) held`;
  }
  if (list === 'parties') {
    return sql`select key, held.pos, 1 as copies from ${asked}, lateral (
      select pos from mirror.parties where party_id = asked.key and epoch = ${epoch} and gone_since is null limit 1) held`;
  }
  return sql`select key, held.pos, held.copies
    from (select key, ${CHECKPOINT_FIELDS} from ${asked}) as asked (key, asked_block, asked_hash, asked_block_hash), lateral (
      select pos, copies from mirror.checkpoints where epoch = ${epoch} and at_block = asked_block and hash = asked_hash
        and block_hash = asked_block_hash and gone_since is null limit 1) held`;
}

/** Which of these keys are not held. */
export async function readUnheld(
  db: Db,
  generation: Generation,
  keys: readonly string[],
): Promise<readonly string[]> {
  if (keys.length === 0) return [];
  const { rows } = await sql<{ key: string }>`select key from (${heldRows(generation, keys)}) held`.execute(
    db,
  );
  const held = new Set(rows.map(({ key }) => key));
  return keys.filter((key) => !held.has(key));
}

export interface Located {
  /** The highest place of these rows. */
  readonly highestPos: bigint;
  /** Rows of the list up to there, repeated ones counted; 0 where the caller does not need it. */
  readonly rowsUpTo: bigint;
}

/**
 * Where the rows of a newest-first page stand.
 * @param countingTo counts the rows up to this place, or to the highest of the asked ones where that is higher
 */
export async function locateRows(
  db: Db,
  generation: Generation,
  keys: readonly string[],
  countingTo?: bigint,
): Promise<Located> {
  const { generationId, list, kind, epoch } = generation;
  const table =
    kind === 'audit'
      ? sql`mirror.audit_rows where generation_id = ${generationId}`
      : sql`${tableOf(list)} where epoch = ${epoch} and gone_since is null`;
  const copies = kind === 'current' && list === 'parties' ? sql`1` : sql`copies`;
  const { rows } = await sql<Located>`
    with top as (select coalesce(max(pos), 0) as pos from (${heldRows(generation, keys)}) held)
    select (select pos from top) as "highestPos",
      (select coalesce(sum(${copies}), 0)::bigint from ${table} and ${countingTo !== undefined}
        and pos <= greatest((select pos from top), ${countingTo ?? 0n}::bigint)) as "rowsUpTo"`.execute(db);
  return theOnly(rows);
}

/** The row with the highest place. */
export async function readLastKey(db: Db, { list, epoch }: Generation): Promise<string | undefined> {
  const { rows } = await sql<{ key: string }>`select ${keyOf(list)} as key from ${tableOf(list)}
    where epoch = ${epoch} and pos is not null order by pos desc limit 1`.execute(db);
  return rows[0]?.key;
}

/** Keeps a party without a place: `network`, or one that was looked up. @returns whether it was known */
export async function keepUnplaced(tx: Tx, epoch: number, { key, extra }: ListedRow): Promise<boolean> {
  const { rows } = await sql<{ wasKnown: boolean }>`
    insert into mirror.parties as held (party_id, first_epoch, epoch, extra)
    values (${key}, ${epoch}, ${epoch}, ${extra === undefined ? null : JSON.stringify(extra)}::jsonb)
    on conflict (party_id) do update set epoch = excluded.epoch, last_seen_at = clock_timestamp(),
      pos = case when held.epoch = excluded.epoch then held.pos end,
      gone_since = null, extra = coalesce(excluded.extra, held.extra)
    returning xmax <> 0 as "wasKnown"`.execute(tx);
  return theOnly(rows).wasKnown;
}

export function theOnly<Row>(rows: readonly Row[]): Row {
  const [row] = rows;
  if (row === undefined) throw new TypeError('a statement that always gives a row gave none');
  return row;
}
