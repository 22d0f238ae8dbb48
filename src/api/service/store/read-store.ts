/**
 * The mirrored lists for the read API. Every slice is one range of one index, so that a page costs the
 * same at any depth.
 */
import { NETWORK_PARTY } from '../../../core/ids.ts';
import type { Rows } from '../../../postgres/rows.ts';

/** A slice of a list in one direction from a position, in the order in which it is read. */
export interface SliceQuestion<Position> {
  readonly epoch: number;
  /** true: towards higher positions (newer rows). */
  readonly ascending: boolean;
  /** Rows strictly beyond it. Absent: from the list's end. */
  readonly beyond: Position | undefined;
  readonly rowsMax: number;
}

export interface PartyRow {
  readonly id: string;
  /** Its place in the source's order; null for the network's own party, which has none. */
  readonly pos: bigint | null;
}

/**
 * One of the equal checkpoints that the source lists: `copy` counts them from 0, so that every row of
 * the list has a position of its own.
 */
export interface CheckpointRow {
  readonly atBlock: string;
  readonly hash: string;
  readonly blockHash: string;
  readonly copy: number;
}

interface EqualCheckpoints extends Omit<CheckpointRow, 'copy'> {
  readonly copies: number;
}

/** How the served lists stand: which life of the chain they are of, and as of which block. */
export interface ListState {
  readonly epoch: number;
  /** The source's last block when the newest row was read, and its nanoseconds since 1970; 0 before the first sync. */
  readonly headHeight: string;
  readonly headNanos: string;
  /** Whether the list was ever read to its end. A first reading is served as far as it has come. */
  readonly isComplete: boolean;
}

export type ListStore = Pick<ReadStore, keyof ReadStore>;

const STATE = `
  select n.epoch, coalesce(g.head_height, 0)::text as "headHeight",
    trunc(coalesce(extract(epoch from g.head_time), 0) * 1000000000)::text as "headNanos",
    g.claimed_at is not null as "isComplete"
  from (select coalesce(max(epoch), 1) as epoch from mirror.networks) n
  left join mirror.generations g on g.epoch = n.epoch and g.list = $1 and g.kind = 'current'`;

/** A party that is known from an earlier life of the chain only is not in the list that is served. */
const PARTY = `
  select pos from mirror.parties
  where party_id = $2 and (party_id = '${NETWORK_PARTY}' or (epoch = $1 and pos is not null))`;

export class ReadStore {
  readonly #rows: Rows;

  constructor(rows: Rows) {
    this.#rows = rows;
  }

  state(list: 'parties' | 'checkpoints'): Promise<ListState> {
    return this.#row('read how a list stands', STATE, [list]);
  }

  parties(question: SliceQuestion<bigint>): Promise<readonly PartyRow[]> {
    const { epoch, rowsMax, beyond } = question;
    const { order, side } = direction(question.ascending);
    const where = beyond === undefined ? 'pos is not null' : `pos ${side} $3`;
    return this.#rows(
      'read a page of parties',
      `select party_id as id, pos from mirror.parties where epoch = $1 and ${where} order by pos ${order} limit $2::int`,
      [epoch, rowsMax, ...(beyond === undefined ? [] : [beyond])],
      `parties ${order} ${where}`,
    );
  }

  /** Where one party stands; `null` for the network's own, which is listed and has no position. */
  async party(epoch: number, id: string): Promise<Pick<PartyRow, 'pos'> | undefined> {
    const [row] = await this.#rows<Pick<PartyRow, 'pos'>>('look a party up', PARTY, [epoch, id]);
    return row;
  }

  async checkpoints(question: SliceQuestion<CheckpointRow>): Promise<readonly CheckpointRow[]> {
    const { epoch, rowsMax, beyond } = question;
    const { order, side } = direction(question.ascending);
    const where =
      beyond === undefined ? '' : `and (at_block, hash, block_hash) ${side}= ($3::numeric, $4, $5)`;
    const rows = await this.#rows<EqualCheckpoints>(
      'read a page of checkpoints',
      `select at_block as "atBlock", hash, block_hash as "blockHash", copies
       from mirror.checkpoints where epoch = $1 ${where}
       order by at_block ${order}, hash ${order}, block_hash ${order} limit $2::int`,
      // One more than asked: the row that the slice starts from may have no copy left.
      [epoch, rowsMax + 1, ...(beyond === undefined ? [] : [beyond.atBlock, beyond.hash, beyond.blockHash])],
      `checkpoints ${order} ${beyond === undefined ? '' : 'beyond'}`,
    );
    return repeated(rows, question);
  }

  /** 32 bytes that no client knows, the same for every process of this mirror: without them nobody can forge. */
  async cursorSecret(): Promise<Buffer> {
    const { secret } = await this.#row<{ secret: Buffer }>(
      "read the cursors' secret",
      'select cursor_secret as secret from mirror.identity',
    );
    return secret;
  }

  async #row<Row extends object>(action: string, text: string, values?: unknown[]): Promise<Row> {
    const [row] = await this.#rows<Row>(action, text, values);
    if (row === undefined) throw new TypeError(`no row to ${action}`);
    return row;
  }
}

function direction(ascending: boolean): { side: '>' | '<'; order: 'asc' | 'desc' } {
  return ascending ? { side: '>', order: 'asc' } : { side: '<', order: 'desc' };
}

/** Gives every row as often as the source lists it, beginning behind the one that the slice starts from. */
function repeated(
  rows: readonly EqualCheckpoints[],
  { ascending, beyond, rowsMax }: SliceQuestion<CheckpointRow>,
): readonly CheckpointRow[] {
  const found: CheckpointRow[] = [];
  for (const { copies, ...row } of rows) {
    const isStart =
      beyond?.atBlock === row.atBlock && beyond.hash === row.hash && beyond.blockHash === row.blockHash;
    let copy = ascending ? 0 : copies - 1;
    if (isStart) copy = beyond.copy + (ascending ? 1 : -1);
    for (; copy >= 0 && copy < copies; copy += ascending ? 1 : -1) {
      if (found.length === rowsMax) return found;
      found.push({ ...row, copy });
    }
  }
  return found;
}
