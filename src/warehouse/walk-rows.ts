/** The rows of the two lists, written in bulk: one statement a table and page. */
import { sql, type RawBuilder, type Transaction } from 'kysely';
import { PermanentError } from '../core/errors.ts';
import type { ListedRow, PlacedRows } from '../walk/ports.ts';
import type { MirrorSchema } from './schema.ts';

type Tx = Transaction<MirrorSchema>;

export interface RowContext {
  readonly epoch: number;
  readonly walkId: bigint;
  /** An audit says of every row that it was seen. */
  readonly isAudit: boolean;
}

/**
 * Parties and their places. A party that has another place already is moved: it was unproven there.
 * @returns how many had none
 */
export async function writeParties(
  tx: Tx,
  context: RowContext,
  placed: readonly PlacedRows[],
): Promise<number> {
  const columns = columnsOf(placed);
  if (columns.ids.length === 0) return 0;
  await upsertParties(tx, context, columns);
  return countFresh(
    tx,
    sql`
    insert into mirror.places as place (epoch, party_id, pos, last_seen_walk)
    select ${context.epoch}, party_id, pos, ${context.walkId}
    from unnest(${columns.ids}::text[], ${columns.positions}::bigint[]) as fresh (party_id, pos)
    on conflict (epoch, party_id) do update
      set pos = excluded.pos, last_seen_walk = excluded.last_seen_walk, gone_since = null`,
  );
}

/** A page by columns, as bulk statements take it. */
export interface PartyColumns {
  readonly ids: readonly string[];
  readonly positions: readonly bigint[];
  readonly times: readonly (string | null)[];
  /** Empty where no row has any: the statement takes that for nulls. */
  readonly extras: readonly (string | null)[];
}

export function columnsOf(placed: readonly PlacedRows[]): PartyColumns {
  const ids: string[] = [];
  const positions: bigint[] = [];
  const times: (string | null)[] = [];
  const extras: (string | null)[] = [];
  for (const { pos, rows, firstSeen } of placed) {
    const [row] = rows;
    if (row === undefined) continue;
    ids.push(row.key);
    positions.push(pos);
    times.push(firstSeen ?? null);
    extras.push(extraOf(row));
  }
  return { ids, positions, times, extras: extras.some((extra) => extra !== null) ? extras : [] };
}

/** What is known of a party stays, unless the source says something else now. */
async function upsertParties(
  tx: Tx,
  { epoch, isAudit }: Pick<RowContext, 'epoch' | 'isAudit'>,
  { ids, times, extras }: Omit<PartyColumns, 'positions'>,
): Promise<void> {
  await sql`
    insert into mirror.parties as party (party_id, first_epoch, source_time, extra)
    select party_id, ${epoch}, source_time, extra
    from unnest(${ids}::text[], ${times}::timestamptz[], ${extras}::jsonb[]) as fresh (party_id, source_time, extra)
    on conflict (party_id) do update
      set extra = coalesce(excluded.extra, party.extra),
          source_time = coalesce(party.source_time, excluded.source_time),
          last_seen_at = clock_timestamp()
      where ${isAudit} or (excluded.extra is not null and party.extra is distinct from excluded.extra)`.execute(
    tx,
  );
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
  context: Pick<RowContext, 'epoch'>,
  rows: readonly ListedRow[],
): Promise<void> {
  const distinct = [...new Map(rows.map((row) => [row.key, row])).values()];
  if (distinct.length === 0) return;
  await upsertParties(
    tx,
    { ...context, isAudit: true },
    { ids: distinct.map(({ key }) => key), times: [], extras: distinct.map(extraOf) },
  );
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
