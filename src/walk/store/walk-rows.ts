/** The rows of the two lists, written in bulk: one statement a table and page. */
import { sql, type RawBuilder, type Transaction } from 'kysely';
import { PermanentError } from '../../core/errors.ts';
import type { Micros } from '../../core/time.ts';
import type { ListedRow, PlacedRows } from '../ports.ts';
import { instantArray, int8Array, textArray } from './binary-arrays.ts';
import type { MirrorSchema } from '../../postgres/schema.ts';

type Tx = Transaction<MirrorSchema>;

export interface RowContext {
  readonly epoch: number;
  readonly walkId: bigint;
}

/**
 * Parties and their places. A party that has another place already is moved: it was unproven there. One of
 * an earlier epoch is kept aside.
 * @returns how many had none in this epoch
 */
export async function writeParties(
  tx: Tx,
  { epoch, walkId }: RowContext,
  placed: readonly PlacedRows[],
): Promise<number> {
  if (placed.length === 0) return 0;
  const { ids, positions, times, extras } = columnsOf(placed);
  // All parts of the statement see the table as it was before.
  const { rows } = await sql<{ fresh: bigint }>`
    with fresh as materialized (
      select * from unnest(${ids}::text[], ${positions}::bigint[], ${times}::timestamptz[], ${extras}::jsonb[])
        as row (party_id, pos, source_time, extra)),
    held as (
      select party.* from fresh, lateral (
        select epoch, party_id, pos, last_seen_walk, gone_since from mirror.parties
        where party_id = fresh.party_id and epoch is not null limit 1) as party),
    kept_aside as (
      insert into mirror.former_places (epoch, party_id, pos, last_seen_walk, gone_since)
      select * from held where epoch < ${epoch}::int),
    written as (
      insert into mirror.parties as party
        (party_id, first_epoch, source_time, extra, epoch, pos, last_seen_walk)
      select party_id, ${epoch}::int, source_time, extra, ${epoch}::int, pos, ${walkId}::bigint from fresh
      on conflict (party_id) do update
        set extra = coalesce(excluded.extra, party.extra),
            source_time = coalesce(party.source_time, excluded.source_time),
            last_seen_at = clock_timestamp(),
            epoch = excluded.epoch, pos = excluded.pos, last_seen_walk = excluded.last_seen_walk,
            gone_since = null)
    select count(*) - (select count(*) from held where epoch = ${epoch}::int) as fresh from fresh`.execute(
    tx,
  );
  return Number(rows[0]?.fresh ?? 0n);
}

/** A page by columns, as bulk statements take it. */
export interface PartyColumns {
  readonly ids: Buffer;
  readonly positions: Buffer;
  readonly times: Buffer;
  /** Empty where no row has any: the statement takes that for nulls. */
  readonly extras: readonly (string | null)[];
}

export function columnsOf(placed: readonly PlacedRows[]): PartyColumns {
  const ids: string[] = [];
  const positions: bigint[] = [];
  const times: (Micros | null)[] = [];
  const extras: (string | null)[] = [];
  for (const { pos, rows, firstSeen } of placed) {
    const [row] = rows;
    if (row === undefined) continue;
    ids.push(row.key);
    positions.push(pos);
    times.push(firstSeen ?? null);
    extras.push(extraOf(row));
  }
  return {
    ids: textArray(ids),
    positions: int8Array(positions),
    times: instantArray(times),
    extras: extras.some((extra) => extra !== null) ? extras : [],
  };
}

/** Runs an upsert. @returns how many rows it inserted; the others were there */
async function countFresh(tx: Tx, upsert: RawBuilder<unknown>): Promise<number> {
  const { rows } = await sql<{ fresh: bigint }>`
    with written as (${upsert} returning xmax = 0 as is_fresh)
    select count(*) filter (where is_fresh) as fresh from written`.execute(tx);
  return Number(rows[0]?.fresh ?? 0n);
}

/** Rows without a place: `network`, a party that was looked up, rows that could not be proven. */
export async function writeUnplacedParties(
  tx: Tx,
  { epoch }: Pick<RowContext, 'epoch'>,
  rows: readonly ListedRow[],
): Promise<void> {
  const distinct = [...new Map(rows.map((row) => [row.key, row])).values()];
  if (distinct.length === 0) return;
  await sql`
    insert into mirror.parties as party (party_id, first_epoch, extra)
    select party_id, ${epoch}, extra
    from unnest(${textArray(distinct.map(({ key }) => key))}::text[], ${distinct.map(extraOf)}::jsonb[])
      as fresh (party_id, extra)
    on conflict (party_id) do update
      set extra = coalesce(excluded.extra, party.extra), last_seen_at = clock_timestamp()`.execute(tx);
}

/** Checkpoints, one row for each distinct one; `copies` is how often it was shown. @returns how many are new */
export async function writeCheckpoints(
  tx: Tx,
  context: RowContext,
  rows: readonly ListedRow[],
): Promise<number> {
  const distinct = new Map<string, { row: ListedRow; copies: number }>();
  for (const row of rows) {
    const known = distinct.get(row.key);
    if (known === undefined) distinct.set(row.key, { row, copies: 1 });
    else known.copies += 1;
  }
  if (distinct.size === 0) return 0;
  const all = [...distinct.values()];
  return countFresh(
    tx,
    sql`
    insert into mirror.checkpoints as checkpoint
      (epoch, at_block, hash, block_hash, copies, last_seen_walk, extra)
    select ${context.epoch}, at_block, hash, block_hash, copies, ${context.walkId}, extra
    from unnest(${all.map(({ row }) => field(row, 0))}::numeric[], ${all.map(({ row }) => field(row, 1))}::text[],
      ${all.map(({ row }) => field(row, 2))}::text[], ${all.map(({ copies }) => copies)}::int[],
      ${all.map(({ row }) => extraOf(row))}::jsonb[]) as fresh (at_block, hash, block_hash, copies, extra)
    on conflict (epoch, at_block, hash, block_hash) do update
      set copies = excluded.copies, last_seen_walk = excluded.last_seen_walk, gone_since = null,
          extra = coalesce(excluded.extra, checkpoint.extra)`,
  );
}

function field(row: ListedRow, index: number): string {
  const value = row.fields[index];
  if (value !== undefined) return value;
  throw new PermanentError(`Cannot store ${row.key}: field ${index} is missing`, {
    code: 'PAGE_SHAPE',
    meta: { key: row.key, field: index },
  });
}

function extraOf(row: ListedRow): string | null {
  return row.extra === undefined ? null : JSON.stringify(row.extra);
}
