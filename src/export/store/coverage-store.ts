/** Coverage as it is recorded in the store: what has changed since the last time, read at one moment. */
import type { Pool, PoolClient, QueryResult } from 'pg';
import { readInstant } from '../../core/time.ts';
import type { CoverageSnapshot } from '../ports.ts';
import { type PartyCoverage, type RecordedRange, tailSum } from '../../ledger/objects/coverage-record.ts';
import { takeLock } from '../../postgres/advisory-lock.ts';
import { WAITS_FOR_THE_STORE } from '../../postgres/database.ts';
import { onOwnConnection } from '../../postgres/own-connection.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';

const ACTION = 'record what is covered';
const ROWS_AT_ONCE = 2000;

const ANY = 'select from mirror.exports where coverage_seq <> recorded_seq limit 1';
const NUMBER = `update mirror.identity set publication_seq = publication_seq + 1
  returning warehouse_id, publication_seq, (
    select 2 * count(*) filter (where coverage_seq <> recorded_seq) >= count(*) from mirror.exports) as is_mostly_changed`;
/** A killed process's note is of no use: what it has not recorded, the next one notes. */
const FORGET = 'truncate mirror.recording';
const NOTE = `insert into mirror.recording
  select export_id, coverage_seq from mirror.exports where coverage_seq <> recorded_seq`;
const DONE = `update mirror.exports e set recorded_seq = r.coverage_seq from mirror.recording r where e.export_id = r.export_id`;

const CHANGED = `where c.party_id in (select party_id from mirror.exports where coverage_seq <> recorded_seq)`;
const COVERED = (which: 'all' | 'changed'): string => `declare covered no scroll cursor for
  select c.party_id, c.asset_id, c.from_time, c.to_time, c.open, c.sides, s.object_key, c.tail, c.run_id, c.checked_at
  from mirror.coverage c left join mirror.segments s using (segment_id)
  ${which === 'changed' ? CHANGED : ''}
  order by c.party_id collate "C", c.from_time, c.asset_id collate "C"`;

interface CoveredRow {
  readonly party_id: string;
  readonly asset_id: string | null;
  readonly from_time: string;
  readonly to_time: string;
  readonly open: boolean;
  readonly sides: RecordedRange['sides'];
  readonly object_key: string | null;
  readonly tail: unknown;
  readonly run_id: string | null;
  readonly checked_at: string;
}

export class CoverageStore {
  readonly #pool: Pool;

  constructor(pool: Pool) {
    this.#pool = pool;
  }

  /** All on one connection, closed behind the work: whoever lost the lock cannot note anything as recorded. */
  async recording<Result>(
    work: (snapshot: CoverageSnapshot) => Promise<Result>,
    signal: AbortSignal,
  ): Promise<Result | undefined> {
    return onOwnConnection(this.#pool, ACTION, async (client) => {
      await takeLock(client, 'mirror.coverage', 'session', signal);
      const ask = (text: string): Promise<QueryResult> => mapDatabaseError(ACTION, () => client.query(text));
      if ((await ask(ANY)).rowCount === 0) return undefined;
      const identity = await numbered(client);
      await ask(FORGET);
      // What is noted and what is read is of one moment.
      await ask('begin isolation level repeatable read');
      await ask(WAITS_FOR_THE_STORE);
      await ask(NOTE);
      const parties = (which: 'all' | 'changed'): AsyncGenerator<PartyCoverage> =>
        readParties(client, which, signal);
      const result = await work({ ...identity, parties });
      await ask('commit');
      await ask('analyze mirror.recording');
      await ask(DONE);
      return result;
    });
  }
}

async function numbered(client: PoolClient): Promise<Omit<CoverageSnapshot, 'parties'>> {
  const { rows } = await mapDatabaseError(ACTION, () =>
    client.query<{ warehouse_id: string; publication_seq: bigint; is_mostly_changed: boolean }>(NUMBER),
  );
  const [row] = rows;
  if (row === undefined) throw new RangeError('the warehouse has no identity');
  return {
    warehouseId: row.warehouse_id,
    seq: row.publication_seq,
    isMostlyChanged: row.is_mostly_changed,
  };
}

async function* readParties(
  client: PoolClient,
  which: 'all' | 'changed',
  signal: AbortSignal,
): AsyncGenerator<PartyCoverage> {
  await mapDatabaseError(ACTION, () => client.query(COVERED(which)));
  let party: { partyId: string; coverage: RecordedRange[] } | undefined;
  for (;;) {
    signal.throwIfAborted();
    const { rows } = await mapDatabaseError(ACTION, () =>
      client.query<CoveredRow>(`fetch ${ROWS_AT_ONCE} from covered`),
    );
    for (const row of rows) {
      if (party !== undefined && party.partyId !== row.party_id) yield party;
      if (party?.partyId !== row.party_id) party = { partyId: row.party_id, coverage: [] };
      party.coverage.push(rangeOf(row));
    }
    if (rows.length === 0) break;
  }
  if (party !== undefined) yield party;
}

function rangeOf(row: CoveredRow): RecordedRange {
  return {
    assetId: row.asset_id,
    from: readInstant(row.from_time),
    to: readInstant(row.to_time),
    open: row.open,
    sides: row.sides,
    objectKey: row.object_key,
    tail: row.tail === null ? null : tailSum.parse(row.tail),
    runId: row.run_id,
    checkedAt: readInstant(row.checked_at),
  };
}
