/** How the mirror stands, for `/mirror/status`, the console and the metrics. */
import type { RunDocument } from '../run-document.ts';
import type { Pool } from 'pg';
import type { MirrorFacts, RunsQuestion, StatusStore, StreamStatus } from '../../api/http/ports.ts';
import type { Verdict } from '../../core/verdict.ts';
import type { Database } from '../../postgres/database.ts';
import { type Completeness, readCompleteness } from './completeness.ts';
import type { RunState } from '../../postgres/schema.ts';
import { RunLogStore, type RunLinePage } from './run-log-store.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';

const QUERY_TIMEOUT_MS = 30_000;

/** One statement, so that all of it is of one instant. Counts are exact: an estimate would be doubted. */
const FACTS = `
  with network as (select max(epoch) as epoch from mirror.networks),
  verdicts as (
    select s.stream, r.verdict, r.finished_at
    from (values ('parties', 'sync', 'parties'), ('checkpoints', 'sync', 'checkpoints'), ('ledger', 'nightly', null))
      s(stream, kind, subject)
    left join lateral (
      select verdict, finished_at from mirror.runs
      where kind = s.kind and (s.subject is null or subject = s.subject) and state = 'done'
      order by queued_at desc limit 1) r on true),
  heads as (
    select list, head_height, head_time from mirror.generations
    where epoch = (select epoch from network) and kind = 'current' and claimed_at is not null),
  ledger as (
    select coalesce(sum(segments), 0) as segments, coalesce(sum(rows), 0) as rows, coalesce(sum(bytes), 0) as bytes,
      count(*) as parties, coalesce(sum(not_loaded), 0) as not_loaded
    from (select count(*) as segments, sum(rows) as rows, sum(bytes) as bytes,
        count(*) filter (where loaded_at is null) as not_loaded
      from mirror.segments where status = 'current' group by party_id) by_party)
  select json_build_object(
    'epoch', (select epoch from network),
    'sourceUrl', (select source_url from mirror.identity),
    'parties', (select count(*)::text from mirror.parties
      where epoch = (select epoch from network) or epoch is null),
    'checkpoints', (select count(*)::text from mirror.checkpoints where epoch = (select epoch from network)),
    'verdicts', (select json_object_agg(stream, json_build_object('verdict', verdict, 'at', finished_at)) from verdicts),
    'heads', (select json_object_agg(list, json_build_object('height', head_height::text, 'time', head_time)) from heads),
    'ledger', (select json_build_object('segments', segments::text, 'rows', rows::text, 'bytes', bytes::text,
      'parties', parties::text, 'notLoaded', not_loaded::text) from ledger),
    'quarantined', (select count(*)::text from mirror.exports where quarantined_at is not null),
    'knownGaps', (select count(*)::text from mirror.list_gaps
      where epoch = (select epoch from network) and closed_at is null),
    'lastVerify', (select json_build_object('verdict', verdict, 'at', finished_at, 'runId', run_id) from mirror.runs
      where kind = 'verify' and state = 'done' order by queued_at desc limit 1),
    'openRuns', (select count(*)::text from mirror.runs where state in ('queued', 'running'))) as facts`;

interface FactsRow {
  readonly epoch: number;
  readonly sourceUrl: string | null;
  readonly parties: string;
  readonly checkpoints: string;
  readonly verdicts: Readonly<Record<string, { verdict: Verdict | null; at: string | null }>>;
  readonly heads: Readonly<Record<string, { height: string | null; time: string | null }>> | null;
  readonly ledger: { segments: string; rows: string; bytes: string; parties: string; notLoaded: string };
  readonly quarantined: string;
  readonly knownGaps: string;
  readonly openRuns: string;
  readonly lastVerify: MirrorFacts['lastVerify'];
}

const RUNS = `
  select run_id, parent_run_id, kind, subject, state, verdict, evidence, queued_at, started_at, finished_at, attempts
  from mirror.runs`;

interface RunRow {
  readonly run_id: string;
  readonly parent_run_id: string | null;
  readonly kind: string;
  readonly subject: string;
  readonly state: RunState;
  readonly verdict: Verdict | null;
  readonly evidence: Readonly<Record<string, unknown>>;
  readonly queued_at: string;
  readonly started_at: string | null;
  readonly finished_at: string | null;
  readonly attempts: number;
}

export class PostgresStatusStore implements StatusStore {
  readonly #pool: Pool;
  readonly #db: Database;

  constructor({ pool, db }: { readonly pool: Pool; readonly db: Database }) {
    this.#pool = pool;
    this.#db = db;
  }

  logs(runId: string, rowsMax: number, after: string): Promise<RunLinePage> {
    return new RunLogStore(this.#db).read(runId, rowsMax, after);
  }

  async facts(): Promise<MirrorFacts> {
    const [[row], coverage] = await Promise.all([
      this.#rows<{ facts: FactsRow }>('read how the mirror stands', FACTS, []),
      readCompleteness(this.#db),
    ]);
    if (row === undefined) throw new TypeError('a statement without a from clause gave no row');
    const { facts } = row;
    return {
      sourceUrl: facts.sourceUrl,
      epoch: facts.epoch,
      streams: [
        listStatus('parties', facts),
        listStatus('checkpoints', facts),
        ledgerStatus(facts, coverage),
      ],
      ledger: {
        segments: facts.ledger.segments,
        bytes: facts.ledger.bytes,
        parties: facts.ledger.parties,
        notLoaded: facts.ledger.notLoaded,
        quarantined: facts.quarantined,
      },
      coverage,
      knownGaps: facts.knownGaps,
      openRuns: facts.openRuns,
      lastVerify: facts.lastVerify,
    };
  }

  async runs(question: RunsQuestion): Promise<readonly RunDocument[]> {
    const rows = await this.#rows<RunRow>(
      'list runs',
      `${RUNS}
       where ($1::text is null or kind = $1)
         and ($2::uuid is null or (queued_at, run_id) < (select queued_at, run_id from mirror.runs where run_id = $2))
       order by queued_at desc, run_id desc limit $3`,
      [question.kind, question.before, question.rowsMax],
    );
    return rows.map(runDocument);
  }

  async run(runId: string): Promise<RunDocument | undefined> {
    const [row] = await this.#rows<RunRow>('read a run', `${RUNS} where run_id = $1`, [runId]);
    return row === undefined ? undefined : runDocument(row);
  }

  async #rows<Row extends object>(action: string, text: string, values: unknown[]): Promise<Row[]> {
    const query = { text, values, query_timeout: QUERY_TIMEOUT_MS };
    const result = await mapDatabaseError(action, () => this.#pool.query<Row>(query));
    return result.rows;
  }
}

function listStatus(name: 'parties' | 'checkpoints', facts: FactsRow): StreamStatus {
  const last = facts.verdicts[name];
  const head = facts.heads?.[name];
  return {
    name,
    verdict: last?.verdict ?? null,
    checkedAt: last?.at ?? null,
    asOfBlock: head?.height ?? null,
    asOfTime: head?.time ?? null,
    rows: facts[name],
  };
}

/** The ledgers are as fresh as the one that is covered the least far. */
function ledgerStatus(facts: FactsRow, { coveredTo }: Completeness): StreamStatus {
  const last = facts.verdicts['ledger'];
  return {
    name: 'ledger',
    verdict: last?.verdict ?? null,
    checkedAt: last?.at ?? null,
    asOfBlock: null,
    asOfTime: coveredTo,
    rows: facts.ledger.rows,
  };
}

function runDocument(row: RunRow): RunDocument {
  return {
    runId: row.run_id,
    parentRunId: row.parent_run_id,
    kind: row.kind,
    subject: row.subject,
    state: row.state,
    verdict: row.verdict,
    evidence: row.evidence,
    queuedAt: row.queued_at,
    startedAt: row.started_at,
    finishedAt: row.finished_at,
    attempts: row.attempts,
  };
}
