/** How the mirror stands, for `/mirror/status`, the console and the metrics. */
import { UnreachableError } from '../../errors/errors.ts';
import { withTimeout } from '../../concurrency/timeouts.ts';
import type { MirrorFacts, StatusStore } from '../../api/http/ports.ts';
import type { Database, Warehouse } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/database-error.ts';
import { readRow } from '../../postgres/run-statement.ts';
import { statement, typed } from '../../postgres/statement.ts';
import { readCompleteness } from './completeness.ts';
import { readLines } from '../../runs/store/run-logs.ts';
import { RunStore } from '../../runs/store/run-store.ts';

const LIMIT_MS = 30_000;

/** One statement, so that all of it is of one instant. Counts are exact: an estimate would be doubted. */
const FACTS = statement({ facts: typed<Omit<StoredFacts, 'coverage'>>('json') })`
  with network as (select max(epoch) as epoch from mirror.networks),
  ledger as (
    select coalesce(sum(segments), 0) as segments, coalesce(sum(rows), 0) as rows, coalesce(sum(bytes), 0) as bytes,
      count(*) as parties, coalesce(sum(not_loaded), 0) as not_loaded
    from (select count(*) as segments, sum(rows) as rows, sum(bytes) as bytes,
        count(*) filter (where loaded_at is null) as not_loaded
      from mirror.segments where status = 'current' group by party_id) by_party),
  streams as (
    select s.position, s.stream, r.verdict, r.finished_at, head.head_height, head.head_time,
      case s.stream
        when 'parties' then (select count(*) from mirror.parties
          where epoch = (select epoch from network) or epoch is null)
        when 'checkpoints' then (select count(*) from mirror.checkpoints where epoch = (select epoch from network))
        else (select rows from ledger) end as rows
    from (values (1, 'parties', 'sync', 'parties'), (2, 'checkpoints', 'sync', 'checkpoints'), (3, 'ledger', 'nightly', null))
      s(position, stream, kind, subject)
    left join lateral (
      select verdict, finished_at from mirror.runs
      where kind = s.kind and (s.subject is null or subject = s.subject) and state = 'done'
      order by queued_at desc limit 1) r on true
    left join mirror.generations head on head.list = s.stream and head.epoch = (select epoch from network)
      and head.kind = 'current' and head.claimed_at is not null)
  select json_build_object(
    'epoch', (select epoch from network),
    'sourceUrl', (select source_url from mirror.identity),
    'streams', (select json_agg(json_build_object('name', stream, 'verdict', verdict, 'checkedAt', finished_at,
      'asOfBlock', head_height::text, 'asOfTime', head_time, 'rows', rows::text) order by position) from streams),
    'ledger', (select json_build_object('segments', segments::text, 'bytes', bytes::text,
      'parties', parties::text, 'notLoaded', not_loaded::text,
      'quarantined', (select count(*)::text from mirror.exports where quarantined_at is not null)) from ledger),
    'knownGaps', (select count(*)::text from mirror.list_gaps
      where epoch = (select epoch from network) and closed_at is null),
    'lastVerify', (select json_build_object('verdict', verdict, 'at', finished_at, 'runId', run_id) from mirror.runs
      where kind = 'verify' and state = 'done' order by queued_at desc limit 1),
    'openNightlyRun', (select run_id from mirror.runs
      where kind = 'nightly' and state in ('queued', 'running') order by queued_at limit 1),
    'openRuns', (select count(*)::text from mirror.runs where state in ('queued', 'running'))) as facts`;

/** What the tables of the mirror say; how its work stands is told beside. */
type StoredFacts = Omit<MirrorFacts, 'lists' | 'work' | 'lakeCommitsDecidedBy'>;
type StoredStatus = Omit<StatusStore, 'facts'> & { facts(): Promise<StoredFacts> };

/** @param limitMs how long each answer may take */
export function openStatusStore(
  { db }: Pick<Warehouse, 'db'>,
  limitMs = LIMIT_MS,
): StoredStatus {
  const runs = new RunStore(db);
  const answer = <Answer>(action: string, ask: () => Promise<Answer>) => {
    const late = `Cannot ${action}: the database did not answer within ${limitMs} ms`;
    const asking = () => mapDatabaseError(action, ask);
    return withTimeout(
      limitMs,
      asking,
      () => new UnreachableError(late, { code: 'DATABASE_UNREACHABLE' }),
    );
  };
  return {
    facts: () => answer('read how the mirror stands', () => readFacts(db)),
    runs: (question) => answer('list runs', () => runs.list(question)),
    run: (runId) => answer('read a run', () => runs.get(runId)),
    logs: (...page) => answer('read the log of a run', () => readLines(db, ...page)),
  };
}

async function readFacts(db: Database) {
  const reading = readRow(db, 'read how the mirror stands', FACTS);
  const [{ facts }, coverage] = await Promise.all([reading, readCompleteness(db)]);
  const { covered, wanted, coveredTo } = coverage;
  // Ledgers are as fresh as the one that is covered the least far, and of no instant while one is not covered.
  const asOfTime = covered === wanted ? coveredTo : null;
  const streams = facts.streams.map((one) =>
    one.name === 'ledger' ? { ...one, asOfTime } : one,
  );
  return { ...facts, coverage, streams };
}
