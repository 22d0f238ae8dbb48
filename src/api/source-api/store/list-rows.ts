/**
 * Reads the mirrored lists for the read API. Every slice is a single index range, so a
 * page costs the same at any depth.
 */
import { NETWORK_PARTY } from '../../../ledger/ids.ts';
import { onlyRow, type Rows } from '../../../postgres/api-rows.ts';
import type { PageRequest } from '../paging.ts';

/**
 * Fields of a listed row that the mirror passes through from the source without
 * interpreting them.
 */
type ExtraFields = Readonly<Record<string, unknown>>;

export interface PartyRow {
  readonly id: string;
  /**
   * The party's position in the source's order; null for the network's own party, which
   * has none.
   */
  readonly pos: string | null;
  readonly extra: ExtraFields | null;
}

export interface CheckpointRow {
  readonly atBlock: string;
  readonly hash: string;
  readonly blockHash: string;
  /**
   * Numbers the copies of a row that the source lists more than once, so that every row
   * of the list has its own position.
   */
  readonly copy: string;
  readonly extra: ExtraFields | null;
}

export type ListName = 'parties' | 'checkpoints';

/** The state of the served list: its epoch, and the block up to which it is current. */
export interface ListState {
  readonly epoch: number;
  /**
   * Height of the source's last block when the newest row was read; 0 before the first
   * sync.
   */
  readonly headHeight: string;
  /**
   * Time of that block, in nanoseconds since 1970; 0 before the first sync. It is never
   * later than `provenTo`: clients consider ledgers complete up to this time, but a sync
   * of the lists does not add entries to the ledgers.
   */
  readonly headNanos: string;
  /**
   * The instant up to which the last nightly run proved the ledgers, as RFC 3339; null
   * before the first nightly run.
   */
  readonly provenTo: string | null;
  /**
   * Whether the list was ever read to its end. Until then, the rows read so far are
   * served.
   */
  readonly isComplete: boolean;
  /** Whether the network's own party is listed. */
  readonly hasNetwork: boolean;
}

const STATE = `
  select n.epoch, coalesce(g.head_height, 0)::text as "headHeight",
    trunc(coalesce(extract(epoch from least(g.head_time, exported.closed_to)), 0) * 1000000000)::text as "headNanos",
    exported.closed_to as "provenTo",
    g.confirmed_at is not null as "isComplete",
    exists (select from mirror.parties where party_id = '${NETWORK_PARTY}') as "hasNetwork"
  from (select coalesce(max(epoch), 1) as epoch from mirror.networks) n
  left join mirror.generations g
    on g.epoch = n.epoch and g.list = $1 and g.kind = 'current'
  left join lateral (
    select (evidence->'exports'->>'closedTo')::timestamptz as closed_to
    from mirror.runs
    where kind = 'nightly' and state = 'done' and evidence->'exports' ? 'closedTo'
    order by queued_at desc limit 1) exported on true`;

/**
 * The source's own spelling of a party's id is kept in `extra`. It is removed here,
 * because ids are always served in their canonical form.
 */
const PARTY_COLUMNS = `party_id as id, pos::text, extra - 'id' as extra`;

/**
 * Looks up a party in the served list, which excludes parties that only exist in an
 * earlier epoch of the chain.
 */
const PARTY = `
  select ${PARTY_COLUMNS} from mirror.parties
  where party_id = $2
    and (party_id = '${NETWORK_PARTY}' or (epoch = $1 and pos is not null))`;

/** The start and the direction of a slice, as fragments of SQL. */
interface SliceText {
  readonly isBeyond: boolean;
  readonly side: '>' | '<';
  readonly order: 'asc' | 'desc';
}

/**
 * In both statements, $1 is the epoch and $2 the number of rows; the position starts at
 * $3.
 */
const SLICES: Readonly<Record<ListName, (slice: SliceText) => string>> = {
  // Aggregates the page into a single row, because transferring a thousand rows of three
  // values would take longer than everything else. The ids and the positions are joined
  // by line breaks, which neither of them contains. Few parties have extra fields, so
  // those fields are keyed by id.
  parties: ({ isBeyond, side, order }) => `
    select string_agg(party_id, E'\\n') as ids, string_agg(pos::text, E'\\n') as positions,
      jsonb_object_agg(party_id, extra - 'id') filter (where extra is not null) as extras
    from (
      select party_id, pos, extra from mirror.parties
      where epoch = $1 and ${isBeyond ? `pos ${side} $3::bigint` : 'pos is not null'}
      order by parties.pos ${order} limit $2::int
    ) page`,
  // The inner query reads one more row than requested, because all copies of the row that
  // the slice starts from may already have been served.
  checkpoints: ({ isBeyond, side, order }) => `
    select at_block::text as "atBlock", hash, block_hash as "blockHash",
      nth::text as copy, extra
    from (
      select at_block, hash, block_hash, copies, extra from mirror.checkpoints
      where epoch = $1
        ${isBeyond ? `and (at_block, hash, block_hash) ${side}= ($3::numeric, $4, $5)` : ''}
      order by at_block ${order}, hash ${order}, block_hash ${order}
      limit $2::int + 1
    ) page, generate_series(1, copies) nth
    ${isBeyond ? `where (at_block, hash, block_hash, nth) ${side} ($3::numeric, $4, $5, $6::int)` : ''}
    order by at_block ${order}, hash ${order}, block_hash ${order}, nth ${order}
    limit $2::int`,
};

export function readListState(rows: Rows, list: ListName): Promise<ListState> {
  return onlyRow(rows<ListState>('read how a list stands', STATE, [list]));
}

/** A slice that starts at an end of the list, or strictly beyond a position. */
type Slice = Omit<PageRequest, 'isForward'>;

/** Reads a slice of the parties. The rows come in the slice's own direction. */
export async function readPartySlice(
  rows: Rows,
  epoch: number,
  slice: Slice,
): Promise<readonly PartyRow[]> {
  const { ids, positions, extras } = await onlyRow(
    readSlice<PartyColumns>(rows, 'parties', epoch, slice),
  );
  // If there are no rows, the columns are null.
  if (ids === null || positions === null) return [];
  const places = positions.split('\n');
  const extraFields = extras ?? {};
  return ids.split('\n').map((id, index) => ({
    id,
    pos: places[index] ?? null,
    extra: extraFields[id] ?? null,
  }));
}

/** The values of a slice of parties, by column. */
interface PartyColumns {
  /** The ids, one per line. */
  readonly ids: string | null;
  /** The positions, one per line. */
  readonly positions: string | null;
  /** The extra fields by id, for the parties that have any. */
  readonly extras: Readonly<Record<string, ExtraFields>> | null;
}

/** Reads a slice of the checkpoints. The rows come in the slice's own direction. */
export function readCheckpointSlice(
  rows: Rows,
  epoch: number,
  slice: Slice,
): Promise<readonly CheckpointRow[]> {
  return readSlice<CheckpointRow>(rows, 'checkpoints', epoch, slice);
}

function readSlice<Row extends object>(
  rows: Rows,
  list: ListName,
  epoch: number,
  { ascending, beyond = [], rowsMax }: Slice,
): Promise<Row[]> {
  const isBeyond = beyond.length > 0;
  const order = ascending ? 'asc' : 'desc';
  const statement = SLICES[list]({
    isBeyond,
    side: ascending ? '>' : '<',
    order,
  });
  const name = `${list} ${order} ${isBeyond}`;
  return rows<Row>(
    `read a page of ${list}`,
    statement,
    [epoch, rowsMax, ...beyond],
    name,
  );
}

/**
 * Looks up one party.
 * @returns undefined if it is not in the served list
 */
export async function readParty(
  rows: Rows,
  epoch: number,
  id: string,
): Promise<PartyRow | undefined> {
  const [party] = await rows<PartyRow>('look a party up', PARTY, [epoch, id]);
  return party;
}

/**
 * Reads the secret of 32 bytes that signs cursors, shared by all processes of this
 * mirror. Clients do not know it, so they cannot forge a cursor.
 */
export async function readCursorSecret(rows: Rows): Promise<Buffer> {
  const statement = 'select cursor_secret as secret from mirror.identity';
  const row = await onlyRow(
    rows<{ secret: Buffer }>("read the cursors' secret", statement),
  );
  return row.secret;
}
