/** Reads the facts of the mirror that are recorded in its tables. */
import type { Database } from '../../postgres/database.ts';
import { readWithin } from '../../postgres/read-within.ts';
import { readRow } from '../../postgres/run-statement.ts';
import { statement, typed } from '../../postgres/statement.ts';
import type { LedgerFacts, StoredFacts } from '../mirror-facts.ts';
import { readCompleteness } from './completeness.ts';
import { RECORDED_NIGHTS } from './recorded-nights.ts';

const ACTION = 'read the state of the mirror';

/**
 * The facts that the statement below returns. The coverage and derived facts are added
 * afterwards.
 */
interface FactsOfTables extends Omit<
  StoredFacts,
  'coverage' | 'ledger' | 'openNightlyRun' | 'awaitedSource'
> {
  readonly ledger: Omit<LedgerFacts, 'quarantined'>;
}

/**
 * One statement, so that all facts describe the same instant. Counts are exact, because
 * operators compare them with the source's.
 */
const FACTS = statement({
  facts: typed<FactsOfTables>('json'),
})`
  with network as (select max(epoch) as epoch from mirror.networks),
  ledger as (
    select count(*) as segments, coalesce(sum(rows), 0) as rows,
      coalesce(sum(bytes), 0) as bytes, count(distinct party_id) as parties,
      count(*) filter (where loaded_at is null) as not_loaded
    from mirror.segments where status = 'current'),
  streams as (
    select s.position, s.stream, r.verdict, r.finished_at, head.head_height, head.head_time,
      case s.stream
        when 'parties' then (select count(*) from mirror.parties
          where epoch = (select epoch from network) or epoch is null)
        when 'checkpoints' then (select count(*) from mirror.checkpoints
          where epoch = (select epoch from network))
        else (select rows from ledger) end as rows
    from (values
      (1, 'parties', 'sync', 'parties'),
      (2, 'checkpoints', 'sync', 'checkpoints'),
      (3, 'ledger', 'nightly', null)) s(position, stream, kind, subject)
    left join lateral (
      select verdict, finished_at from mirror.runs
      where kind = s.kind and (s.subject is null or subject = s.subject) and state = 'done'
      order by queued_at desc limit 1) r on true
    left join mirror.generations head
      on head.list = s.stream and head.epoch = (select epoch from network)
      and head.kind = 'current' and head.claimed_at is not null)
  select json_build_object(
    'epoch', (select epoch from network),
    'sourceUrl', (select source_url from mirror.identity),
    'streams', (
      select json_agg(json_build_object(
        'name', stream, 'verdict', verdict, 'checkedAt', finished_at,
        'asOfBlock', head_height::text, 'asOfTime', head_time,
        'rows', rows::text) order by position) from streams),
    'ledger', (
      select json_build_object('segments', segments::text, 'bytes', bytes::text,
        'parties', parties::text, 'notLoaded', not_loaded::text) from ledger),
    'knownGaps', (
      select count(*)::text from mirror.list_gaps
      where epoch = (select epoch from network) and closed_at is null),
    'lastVerify', (
      select json_build_object('verdict', verdict, 'at', finished_at, 'runId', run_id)
      from mirror.runs
      where kind = 'verify' and state = 'done' order by queued_at desc limit 1),
    'proof', (
      select json_build_object('publicKey', public_key, 'nights', size)
      from mirror.proof_log where public_key is not null),
    'ledgerDoubts', (
      select coalesce(json_agg(json_build_object('code', code,
        'message', coalesce(seen->>'message', code),
        'since', opened_at) order by opened_at), '[]')
      from mirror.doubts
      where subject = 'ledgers' and epoch = (select epoch from network)
        and closed_at is null),
    'recordedNights', ${RECORDED_NIGHTS},
    'openRuns', (
      select count(*)::text from mirror.runs where state in ('queued', 'running'))) as facts`;

/**
 * Reads the facts and the coverage.
 * @param limitMs how long the reads may take; the default is that of `readWithin`
 */
export function readStoredFacts(
  db: Database,
  limitMs?: number,
): Promise<StoredFacts> {
  return readWithin(ACTION, () => readFactsNow(db), limitMs);
}

async function readFactsNow(db: Database): Promise<StoredFacts> {
  // The coverage takes longest, so it gets the connection that is open already. The
  // others may have to open one first, which takes a third of that time.
  const [coverage, { facts }] = await Promise.all([
    readCompleteness(db),
    readRow(db, ACTION, FACTS),
  ]);
  const { covered, wanted, coveredTo } = coverage;
  // The ledgers as a whole are complete only up to the earliest end of any covered
  // ledger. While any wanted ledger is uncovered, no instant applies to all of them.
  const asOfTime = covered === wanted ? coveredTo : null;
  const streams = facts.streams.map((stream) =>
    stream.name === 'ledger' ? { ...stream, asOfTime } : stream,
  );

  const ledger = { ...facts.ledger, quarantined: String(coverage.quarantined) };

  const { running } = facts.recordedNights;
  return {
    ...facts,
    ledger,
    coverage,
    streams,
    openNightlyRun: running?.runId ?? null,
    awaitedSource: running?.awaitedSource ?? null,
  };
}
