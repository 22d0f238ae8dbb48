/**
 * The mirrored lists for the read API. Every slice is one range of one index, so that a page costs the
 * same at any depth. Plain statements instead of the builder: a page of a thousand rows is mostly the
 * time that its rows spend in between.
 */
import type { Pool } from 'pg';
import type { CheckpointRow, ListState, ListStore, PartySlice, SliceQuestion } from '../../http/ports.ts';
import { NETWORK_PARTY } from '../../../core/ids.ts';
import { parseInstant } from '../../../core/time.ts';
import { mapDatabaseError } from '../../../postgres/transaction.ts';

/** What a question may take before its connection is given up. */
const QUERY_TIMEOUT_MS = 10_000;

const STATE = `
  select n.epoch, g.head_height, g.head_time, g.claimed_at is not null
  from (select max(epoch) as epoch from mirror.networks) n
  left join mirror.generations g on g.epoch = n.epoch and g.list = $1 and g.kind = 'current'`;

const PARTY = `
  select case when epoch = $1 then pos end from mirror.parties where party_id = $2`;

export class ReadStore implements ListStore {
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

  async parties(question: SliceQuestion<bigint>): Promise<PartySlice> {
    const { ascending, beyond } = question;
    const { order, beyond: side } = direction(ascending);
    const where = new Conditions(question.epoch);
    if (beyond === undefined) where.and(() => 'pos is not null', []);
    else where.and((place) => `pos ${side} ${place}`, [beyond]);
    const rowsMax = `$${where.values.push(question.rowsMax)}`;
    // One row that holds a page: a thousand rows would take the driver as long as all the rest together.
    const [row] = await this.#rows<[string | null, Buffer | null]>(
      'read a page of parties',
      `select string_agg(party_id, chr(10) order by pos ${order}), string_agg(int8send(pos), ''::bytea order by pos ${order}) from (
         select pos, party_id from mirror.parties where ${where.text} order by pos ${order} limit ${rowsMax}::int) page`,
      where.values,
      `places ${order} ${where.text}`,
    );
    const [ids, places] = row ?? [];
    return { ids: ids?.split('\n') ?? [], places: places ?? Buffer.alloc(0) };
  }

  async party(epoch: number, id: string): Promise<{ pos: bigint | null } | undefined> {
    const [row] = await this.#rows<[bigint | null]>('look a party up', PARTY, [epoch, id]);
    if (row === undefined) return undefined;
    // Known from an earlier life of the chain only: not in the list that is served.
    return row[0] === null && id !== NETWORK_PARTY ? undefined : { pos: row[0] };
  }

  async checkpoints(question: SliceQuestion<CheckpointRow>): Promise<readonly CheckpointRow[]> {
    const { beyond, order } = direction(question.ascending);
    const { beyond: start } = question;
    const where = new Conditions(question.epoch);
    if (start !== undefined) {
      where.and(
        (height, hash, blockHash) =>
          `(at_block, hash, block_hash) ${beyond}= (${height}::numeric, ${hash}, ${blockHash})`,
        [start.atBlock, start.hash, start.blockHash],
      );
    }
    // One more than asked: the row that the slice starts from may have no copy left.
    const rowsMax = `$${where.values.push(question.rowsMax + 1)}`;
    const rows = await this.#rows<[string, string, string, number]>(
      'read a page of checkpoints',
      `select at_block, hash, block_hash, copies from mirror.checkpoints where ${where.text}
       order by at_block ${order}, hash ${order}, block_hash ${order} limit ${rowsMax}::int`,
      where.values,
      `checkpoints ${order} ${start === undefined ? '' : 'beyond'}`,
    );
    return repeated(rows, question);
  }

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

/** A where clause with its values in their places. */
class Conditions {
  text = 'epoch = $1';
  readonly values: unknown[];

  constructor(epoch: number) {
    this.values = [epoch];
  }

  and(condition: (...places: string[]) => string, values: readonly unknown[]): void {
    this.text += ` and ${condition(...values.map((value) => `$${this.values.push(value)}`))}`;
  }
}

function direction(ascending: boolean): { beyond: '>' | '<'; order: 'asc' | 'desc' } {
  return ascending ? { beyond: '>', order: 'asc' } : { beyond: '<', order: 'desc' };
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
