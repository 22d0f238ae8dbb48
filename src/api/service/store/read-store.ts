/**
 * The mirrored lists for the read API. Every slice is one range of one index, so that a page costs the
 * same at any depth.
 */
import type { Pool } from 'pg';
import { NETWORK_PARTY } from '../../../core/ids.ts';
import { type Micros, parseInstant } from '../../../core/time.ts';
import { mapDatabaseError } from '../../../postgres/transaction.ts';

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

/** How the served lists stand: which life of the chain they are of, and as of which block. */
export interface ListState {
  readonly epoch: number;
  /** The source's last block when the newest row was read; undefined before the first sync. */
  readonly headHeight: bigint | undefined;
  readonly headTime: Micros | undefined;
  /** Whether the list was ever read to its end. A first reading is served as far as it has come. */
  readonly isComplete: boolean;
}

export type ListStore = Pick<ReadStore, keyof ReadStore>;

/** What a question may take before its connection is given up. */
const QUERY_TIMEOUT_MS = 10_000;

const STATE = `
  select n.epoch, g.head_height, g.head_time, g.claimed_at is not null
  from (select max(epoch) as epoch from mirror.networks) n
  left join mirror.generations g on g.epoch = n.epoch and g.list = $1 and g.kind = 'current'`;

const PARTY = `
  select case when epoch = $1 then pos end from mirror.parties where party_id = $2`;

export class ReadStore {
  readonly #pool: Pool;

  constructor(pool: Pool) {
    this.#pool = pool;
  }

  async state(list: 'parties' | 'checkpoints'): Promise<ListState> {
    const [row] = await this.#rows<[number, string | null, string | null, boolean]>(
      'read how a list stands',
      STATE,
      [list],
    );
    const [epoch = 1, height = null, time = null, isComplete = false] = row ?? [];
    return {
      epoch,
      headHeight: height === null ? undefined : BigInt(height),
      headTime: time === null ? undefined : parseInstant(time),
      isComplete,
    };
  }

  async parties(question: SliceQuestion<bigint>): Promise<readonly PartyRow[]> {
    const { epoch, rowsMax, beyond } = question;
    const { order, side } = direction(question.ascending);
    const where = beyond === undefined ? 'pos is not null' : `pos ${side} $3`;
    const rows = await this.#rows<[string, bigint]>(
      'read a page of parties',
      `select party_id, pos from mirror.parties where epoch = $1 and ${where} order by pos ${order} limit $2::int`,
      [epoch, rowsMax, ...(beyond === undefined ? [] : [beyond])],
      `parties ${order} ${where}`,
    );
    return rows.map(([id, pos]) => ({ id, pos }));
  }

  /** Where one party stands; `null` for the network's own, which is listed and has no position. */
  async party(epoch: number, id: string): Promise<{ pos: bigint | null } | undefined> {
    const [row] = await this.#rows<[bigint | null]>('look a party up', PARTY, [epoch, id]);
    if (row === undefined) return undefined;
    // Known from an earlier life of the chain only: not in the list that is served.
    return row[0] === null && id !== NETWORK_PARTY ? undefined : { pos: row[0] };
  }

  async checkpoints(question: SliceQuestion<CheckpointRow>): Promise<readonly CheckpointRow[]> {
    const { epoch, rowsMax, beyond } = question;
    const { order, side } = direction(question.ascending);
    const where =
      beyond === undefined ? '' : `and (at_block, hash, block_hash) ${side}= ($3::numeric, $4, $5)`;
    const rows = await this.#rows<[string, string, string, number]>(
      'read a page of checkpoints',
      `select at_block, hash, block_hash, copies from mirror.checkpoints where epoch = $1 ${where}
       order by at_block ${order}, hash ${order}, block_hash ${order} limit $2::int`,
      // One more than asked: the row that the slice starts from may have no copy left.
      [epoch, rowsMax + 1, ...(beyond === undefined ? [] : [beyond.atBlock, beyond.hash, beyond.blockHash])],
      `checkpoints ${order} ${beyond === undefined ? '' : 'beyond'}`,
    );
    return repeated(rows, question);
  }

  /** 32 bytes that no client knows, the same for every process of this mirror. */
  async cursorSecret(): Promise<Buffer> {
    const [row] = await this.#rows<[Buffer]>(
      "read the cursors' secret",
      'select cursor_secret from mirror.identity',
      [],
    );
    // The first migration writes the row; a guessable secret in its place would let anybody forge.
    if (row === undefined) throw new TypeError('mirror.identity has no row');
    return row[0];
  }

  /** @param name what a connection keeps the statement's plan under, at most 63 characters */
  async #rows<Row extends unknown[]>(
    action: string,
    text: string,
    values: unknown[],
    name?: string,
  ): Promise<Row[]> {
    const query = {
      text,
      values,
      rowMode: 'array',
      query_timeout: QUERY_TIMEOUT_MS,
      ...(name === undefined ? {} : { name }),
    };
    const result = await mapDatabaseError(action, () => this.#pool.query<Row>(query));
    return result.rows;
  }
}

function direction(ascending: boolean): { side: '>' | '<'; order: 'asc' | 'desc' } {
  return ascending ? { side: '>', order: 'asc' } : { side: '<', order: 'desc' };
}

/** Gives every row as often as the source lists it, beginning behind the one that the slice starts from. */
function repeated(
  rows: readonly (readonly [string, string, string, number])[],
  { ascending, beyond, rowsMax }: SliceQuestion<CheckpointRow>,
): readonly CheckpointRow[] {
  const found: CheckpointRow[] = [];
  for (const [atBlock, hash, blockHash, copies] of rows) {
    const isStart = beyond?.atBlock === atBlock && beyond.hash === hash && beyond.blockHash === blockHash;
    let copy = ascending ? 0 : copies - 1;
    if (isStart) copy = beyond.copy + (ascending ? 1 : -1);
    for (; copy >= 0 && copy < copies; copy += ascending ? 1 : -1) {
      if (found.length === rowsMax) return found;
      found.push({ atBlock, hash, blockHash, copy });
    }
  }
  return found;
}
