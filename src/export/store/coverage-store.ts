/** Coverage as it is recorded in the store: what has changed since the last time, read at one moment. */
import type { Pool, PoolClient, QueryResult } from 'pg';
import {
  type PartyCoverage,
  recordedRange,
  type RecordedRangeJson,
} from '../../ledger/objects/coverage-record.ts';
import { onOwnConnection, takeLock } from '../../postgres/advisory-lock.ts';
import { WAITS_FOR_THE_STORE } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';

const ACTION = 'record what is covered';
const ROWS_AT_ONCE = 2000;

const ANY = 'select from mirror.exports where coverage_seq <> recorded_seq limit 1';
const NUMBER = `update mirror.identity set publication_seq = publication_seq + 1
  returning warehouse_id as "warehouseId", publication_seq as seq, (
    select 2 * count(*) filter (where coverage_seq <> recorded_seq) >= count(*) from mirror.exports) as "isMostlyChanged"`;
/** A killed process's note is of no use: what it has not recorded, the next one notes. */
const FORGET = 'truncate mirror.recording';
const NOTE = `insert into mirror.recording
  select export_id, coverage_seq from mirror.exports where coverage_seq <> recorded_seq`;
const DONE = `update mirror.exports e set recorded_seq = r.coverage_seq from mirror.recording r where e.export_id = r.export_id`;

const CHANGED = `where c.party_id in (select party_id from mirror.exports where coverage_seq <> recorded_seq)`;
const COVERED = (which: 'all' | 'changed'): string => `declare covered no scroll cursor for
  select c.party_id as "partyId", c.asset_id as "assetId", c.from_time as "from", c.to_time as "to", c.open, c.sides,
    s.object_key as "objectKey", c.tail, c.run_id as "runId", c.checked_at as "checkedAt"
  from mirror.coverage c left join mirror.segments s using (segment_id)
  ${which === 'changed' ? CHANGED : ''}
  order by c.party_id collate "C", c.from_time, c.asset_id collate "C"`;

interface CoveredRow extends RecordedRangeJson {
  readonly partyId: string;
}

/** Coverage of one moment, to be recorded in the store. */
export interface CoverageSnapshot {
  readonly warehouseId: string;
  /** Above that of every publication and record before it. */
  readonly seq: bigint;
  /** Of at least half of all exports the coverage changed since the last record. */
  readonly isMostlyChanged: boolean;
  /** In the order of their ids: every party, or only those whose coverage changed since the last record. */
  parties(which: 'all' | 'changed'): AsyncIterable<PartyCoverage>;
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
    client.query<Omit<CoverageSnapshot, 'parties'>>(NUMBER),
  );
  const [row] = rows;
  if (row === undefined) throw new RangeError('the warehouse has no identity');
  return row;
}

async function* readParties(
  client: PoolClient,
  which: 'all' | 'changed',
  signal: AbortSignal,
): AsyncGenerator<PartyCoverage> {
  await mapDatabaseError(ACTION, () => client.query(COVERED(which)));
  let party: PartyCoverage | undefined;
  for (;;) {
    signal.throwIfAborted();
    const { rows } = await mapDatabaseError(ACTION, () =>
      client.query<CoveredRow>(`fetch ${ROWS_AT_ONCE} from covered`),
    );
    for (const row of rows) {
      if (party !== undefined && party.partyId !== row.partyId) yield party;
      if (party?.partyId !== row.partyId) party = { partyId: row.partyId, coverage: [] };
      party.coverage.push(recordedRange.parse(row));
    }
    if (rows.length === 0) break;
  }
  if (party !== undefined) yield party;
}
