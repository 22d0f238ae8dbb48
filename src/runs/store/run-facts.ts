/** Reads facts across all runs: how they ended, and which of them have unsent notices. */
import { sql } from 'kysely';
import type { Verdict } from '../../errors/verdict.ts';
import type { Database } from '../../postgres/database.ts';
import { readRow, readRows } from '../../postgres/run-statement.ts';
import { statement, typed } from '../../postgres/statement.ts';
import { AWAITS_SOURCE } from '../../status/store/recorded-nights.ts';

/**
 * How the last run of each kind ended; times in seconds since 1970. Facts about nightly
 * runs are in status/night-facts.ts.
 */
export interface RunFacts {
  readonly kinds: readonly ({ readonly kind: string } & Record<
    Seconds,
    number | null
  >)[];
  readonly gaps: number;
}
type Seconds = 'durationSeconds' | 'completeAtSeconds';

/**
 * Reads the facts for metrics in one statement, using the index of the newest runs of
 * each kind.
 */
export async function readRunFacts(db: Database): Promise<RunFacts> {
  const reading = statement({ facts: typed<RunFacts>('json') })`
      select json_build_object(
        'kinds', (select coalesce(json_agg(json_build_object('kind', kind,
            'durationSeconds', extract(epoch from last.finished_at - last.started_at),
            'completeAtSeconds', extract(epoch from good.finished_at))), '[]')
          from unnest(array['sync', 'export', 'load', 'verify']) kind
          left join lateral (select started_at, finished_at from mirror.runs r
            where r.kind = kind.kind and state = 'done' order by queued_at desc limit 1) last on true
          left join lateral (select finished_at from mirror.runs r
            where r.kind = kind.kind and verdict = 'complete' order by queued_at desc limit 1) good on true),
        'gaps', (select count(*) from mirror.list_gaps
          where closed_at is null and epoch = (select max(epoch) from mirror.networks))) as facts`;
  const { facts } = await readRow(db, 'read how runs ended', reading);
  return facts;
}

export interface UntoldRun {
  readonly runId: string;
  readonly isStartTold: boolean;
  /**
   * True if the run waits for its source, and no notice about that was sent in the last
   * hour.
   */
  readonly isWaitUntold: boolean;
  /**
   * The verdict of the previous run of its kind. Nightly runs count as one kind, whether
   * scheduled or on demand.
   */
  readonly verdictBefore: Verdict | null;
}

/**
 * Limits "waiting" notices to one per hour, even if the source flaps every minute.
 * `toldWait` is the start of the outage that triggered the last notice.
 */
const IS_WAIT_UNTOLD = sql`(${AWAITS_SOURCE}
  and coalesce((params->'sourceAbsence'->>'since')::timestamptz
    > (params->>'toldWait')::timestamptz + interval '1 hour', true))`;

/**
 * Returns the runs of the last day that have an unsent notice. Runs whose notice was
 * rejected come last, so that they do not delay the others. Each run records what was
 * sent: `started`, then `ended`.
 */
export function readUntoldRuns(
  db: Database,
  rowsMax: number,
): Promise<readonly UntoldRun[]> {
  const runs = statement({
    runId: 'uuid',
    isStartTold: 'boolean',
    isWaitUntold: 'boolean',
    verdictBefore: typed<Verdict | null>('text?'),
  })`
      select run_id as "runId", params ? 'told' as "isStartTold", ${IS_WAIT_UNTOLD} as "isWaitUntold",
        (select b.verdict from mirror.runs b
          where b.kind = r.kind and (b.kind = 'nightly' or b.subject = r.subject) and b.parent_run_id is null
            and b.state = 'done' and b.queued_at < r.queued_at order by b.queued_at desc limit 1) as "verdictBefore"
      from mirror.runs r
      where parent_run_id is null and queued_at > clock_timestamp() - interval '8 days'
        and coalesce(finished_at, clock_timestamp()) > clock_timestamp() - interval '1 day'
        and ((state = 'running' and not params ? 'told')
          or ${IS_WAIT_UNTOLD}
          or (state in ('done', 'cancelled') and started_at is not null
              and params->>'told' is distinct from 'ended'))
      order by params->>'notifiedLastAt' nulls first, queued_at limit ${rowsMax}`;
  return readRows(db, 'look for runs to notify of', runs);
}
