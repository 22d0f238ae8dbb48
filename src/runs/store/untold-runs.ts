/** Runs whose start or end nobody was told of yet. What a run is a part of tells of its parts. */
import { sql } from 'kysely';
import type { Verdict } from '../../core/verdict.ts';
import type { Database } from '../../postgres/database.ts';
import { readRows } from '../../postgres/transaction.ts';

export interface UntoldRun {
  readonly runId: string;
  readonly isStartTold: boolean;
  /** How the run of its kind before it ended; a nightly run is of the same kind whoever ordered it. */
  readonly verdictBefore: Verdict | null;
}

/** Those of the last day, oldest first. What was told is kept with the run: `started`, then `ended`. */
export function readUntoldRuns(db: Database, rowsMax: number): Promise<readonly UntoldRun[]> {
  return readRows(
    db,
    'look for runs to tell of',
    sql<UntoldRun>`
      select run_id as "runId", params ? 'told' as "isStartTold",
        (select b.verdict from mirror.runs b
          where b.kind = r.kind and (b.kind = 'nightly' or b.subject = r.subject) and b.parent_run_id is null
            and b.state = 'done' and b.queued_at < r.queued_at order by b.queued_at desc limit 1) as "verdictBefore"
      from mirror.runs r
      where parent_run_id is null and queued_at > clock_timestamp() - interval '8 days'
        and coalesce(finished_at, clock_timestamp()) > clock_timestamp() - interval '1 day'
        and ((state = 'running' and not params ? 'told')
          or (state in ('done', 'cancelled') and started_at is not null
              and params->>'told' is distinct from 'ended'))
      order by queued_at limit ${rowsMax}`,
  );
}
