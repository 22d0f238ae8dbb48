/** Generations: what is held of a list, written page by page, each page one transaction. */
import { sql, type Kysely, type RawBuilder, type Transaction } from 'kysely';
import { formatInstant, type Micros } from '../../core/time.ts';
import type { MirrorSchema } from '../../postgres/schema.ts';
import { seenRowTwice } from '../guards.ts';
import type { ListedRow, ListName } from '../ports.ts';
import type { ResumePoint } from '../resume-point.ts';

export type Db = Kysely<MirrorSchema>;
export type Tx = Transaction<MirrorSchema>;

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

/** The source's last block, where it said so. */
export interface SourceHead {
  readonly height: bigint | undefined;
  readonly time: Micros | undefined;
}

export interface PageCommit extends SourceHead {
  readonly rows: readonly ListedRow[];
  readonly resumePoint: ResumePoint;
}

export const COLUMNS = sql`generation_id as "generationId", list, epoch, kind, sequence, resume_point as "resumePoint",
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
  { list, epoch, kind }: Pick<Generation, 'list' | 'epoch' | 'kind'>,
  runId: string,
): Promise<Generation> {
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

export function setHead({ height, time }: SourceHead): RawBuilder<unknown> {
  return sql`head_height = greatest(head_height, ${height ?? null}::numeric),
    head_time = greatest(head_time, ${time === undefined ? null : formatInstant(time)}::timestamptz)`;
}

/**
 * Appends a page. @returns the generation with it; undefined, and nothing is written, where the generation has gone
 * on since the resume point that the page builds on
 * @throws DoubtSeen `ROW_TWICE` where a party is held already
 */
export async function appendPage(
  tx: Tx,
  generation: Pick<Generation, 'generationId'>,
  page: PageCommit,
): Promise<Generation | undefined> {
  const { resumePoint, rows } = page;
  const keys = rows.map(({ key }) => key);
  const distinct = new Set(keys).size;
  const updated = await sql<Generation>`
    update mirror.generations
    set sequence = ${resumePoint.sequence}::bigint, last_pos = last_pos + ${distinct}::int,
      rows = rows + ${rows.length}::int, pages = pages + 1, resume_point = ${JSON.stringify(resumePoint)}::jsonb,
      ${setHead(page)}
    where generation_id = ${generation.generationId} and sequence = ${resumePoint.sequence}::bigint - 1
    returning ${COLUMNS}`.execute(tx);
  const [held] = updated.rows;
  if (held === undefined || distinct === 0) return held;
  const extras = rows.map(({ extra }) => (extra === undefined ? null : JSON.stringify(extra)));
  const shown = sql`select key, count(*)::int as copies, (array_agg(extra order by n))[1] as extra,
      ${held.lastPos - BigInt(distinct)}::bigint + row_number() over (order by min(n)) as pos
    from unnest(${keys}::text[], ${extras}::jsonb[]) with ordinality as row (key, extra, n) group by key`;
  const { numAffectedRows } = await appendRows(held, shown).execute(tx);
  if (numAffectedRows !== BigInt(distinct)) throw seenRowTwice(held.list, keys);
  return held;
}

/** A party is listed once. A checkpoint may be listed several times, next to each other. */
function appendRows(
  { generationId, list, epoch, kind }: Generation,
  shown: RawBuilder<unknown>,
): RawBuilder<unknown> {
  if (kind === 'current') return placeRows(list, epoch, shown, true);
  return sql`insert into mirror.audit_rows as held (generation_id, pos, key, copies, extra)
    select ${generationId}::bigint, pos, key, copies, extra from (${shown}) shown
    on conflict (generation_id, key) do ${
      list === 'parties' ? sql`nothing` : sql`update set copies = held.copies + excluded.copies`
    }`;
}

/**
 * Puts rows into a list.
 * @param shown their key, copies, pos and extra
 * @param isAppended behind those that are held; absent: in their place, where rows that keep it are not touched
 */
export function placeRows(
  list: ListName,
  epoch: number,
  shown: RawBuilder<unknown>,
  isAppended = false,
): RawBuilder<unknown> {
  const kept = sql`gone_since = null, extra = coalesce(excluded.extra, held.extra)`;
  const hasChanged = sql`held.pos is distinct from excluded.pos or held.gone_since is not null
    or (excluded.extra is not null and held.extra is distinct from excluded.extra)`;
  if (list === 'parties') {
    return sql`insert into mirror.parties as held (party_id, first_epoch, epoch, pos, extra)
      select key, ${epoch}::int, ${epoch}::int, pos, extra from (${shown}) shown
      on conflict (party_id) do update set epoch = excluded.epoch, pos = excluded.pos, last_seen_at = clock_timestamp(), ${kept}
      where held.epoch is distinct from excluded.epoch
        or ${isAppended ? sql`held.pos is null or held.gone_since is not null` : hasChanged}`;
  }
  const merged = isAppended
    ? sql`pos = case when held.gone_since is null then held.pos else excluded.pos end,
        copies = case when held.gone_since is null then held.copies else 0 end + excluded.copies, ${kept}`
    : sql`pos = excluded.pos, copies = excluded.copies, ${kept}
        where held.copies <> excluded.copies or ${hasChanged}`;
  return sql`insert into mirror.checkpoints as held (epoch, at_block, hash, block_hash, copies, pos, extra)
    select ${epoch}::int, ${fieldsOf('key')}, copies, pos, extra from (${shown}) shown
    on conflict (epoch, at_block, hash, block_hash) do update set ${merged}`;
}

/** A key of a checkpoint back into its fields. */
function fieldsOf(key: 'key' | 'asked.key'): RawBuilder<unknown> {
  const [hash, blockHash] = [2, 3].map(
    (part) => `replace(replace(split_part(${key}, '/', ${part}), '%2F', '/'), '%25', '%')`,
  );
  return sql.raw(`split_part(${key}, '/', 1)::numeric, ${hash}, ${blockHash}`);
}

interface Rows {
  readonly table: RawBuilder<unknown>;
  readonly copies: RawBuilder<unknown>;
  /** Whether a row `held` has the key `asked.key`. */
  readonly isAsked: RawBuilder<unknown>;
}

/** What all generations of a list have become, by list. */
export const LISTS: Readonly<Record<ListName, Rows & Record<'key' | 'height', RawBuilder<unknown>>>> = {
  parties: {
    table: sql`mirror.parties`,
    key: sql`party_id`,
    height: sql`null::numeric`,
    copies: sql`1`,
    isAsked: sql`held.party_id = asked.key`,
  },
  checkpoints: {
    table: sql`mirror.checkpoints`,
    key: sql.raw(
      `at_block || '/' || replace(replace(hash, '%', '%25'), '/', '%2F') || '/' || replace(replace(block_hash, '%', '%25'), '/', '%2F')`,
    ),
    height: sql`at_block`,
    copies: sql`copies`,
    isAsked: sql`(held.at_block, held.hash, held.block_hash) = (${fieldsOf('asked.key')})`,
  },
};

const AUDIT: Rows = {
  table: sql`mirror.audit_rows`,
  copies: sql`copies`,
  isAsked: sql`held.key = asked.key`,
};

export interface Located {
  /** Those of the asked keys that are held. */
  readonly held: readonly string[];
  /** The highest of their places; null where none has one. */
  readonly highestPos: bigint | null;
  /** Rows of the list up to there, repeated ones counted; 0 where the caller does not need it. */
  readonly rowsUpTo: bigint;
}

/**
 * Which rows of a page are held, and where: one look into an index for each.
 * @param countingTo counts the rows up to this place, or to the highest of the asked ones where that is higher
 */
export async function locateRows(
  db: Db,
  { generationId, list, kind, epoch }: Generation,
  keys: readonly string[],
  countingTo?: bigint,
): Promise<Located> {
  const { table, copies, isAsked } = kind === 'audit' ? AUDIT : LISTS[list];
  const isHeld =
    kind === 'audit' ? sql`generation_id = ${generationId}` : sql`epoch = ${epoch} and gone_since is null`;
  const { rows } = await sql<Located>`
    with found as (select asked.key, one.pos from unnest(${[...keys]}::text[]) as asked (key),
      lateral (select pos from ${table} held where ${isHeld} and ${isAsked} limit 1) one),
    top as (select max(pos) as pos from found)
    select array(select key from found) as held, top.pos as "highestPos",
      (select coalesce(sum(${copies}), 0)::bigint from ${table} where ${isHeld} and ${countingTo !== undefined}
        and pos <= greatest(top.pos, ${countingTo ?? 0n}::bigint)) as "rowsUpTo" from top`.execute(db);
  return theOnly(rows);
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
