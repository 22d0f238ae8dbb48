/**
 * Which schedules are in force, since when, and which of their times have had a run. All
 * of it goes by the database's clock: those of workers may differ from it and from each
 * other.
 */
import type { Database } from '../../postgres/database.ts';
import { execute, readRow } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';
import type { Schedule } from '../../time/scheduled-times.ts';
import type { RunKind } from '../run-schema.ts';

/**
 * A run that ended further in the future than this was timed by a clock that was wrong.
 */
const CLOCK_TOLERANCE_MS = 60_000;

/** The database's time, in milliseconds since 1970. */
export async function readNowMs(db: Database): Promise<number> {
  const now = statement({ nowMs: 'bigint' })`
    select (extract(epoch from clock_timestamp()) * 1000)::bigint as "nowMs"`;
  const { nowMs } = await readRow(db, 'read the time', now);
  return Number(nowMs);
}

/** Records a schedule as in force from now on, unless it is already. */
export async function recordSchedule(
  db: Database,
  name: string,
  { pattern, tz }: Schedule,
): Promise<void> {
  const change = statement()`
    insert into mirror.schedules as held (name, pattern, tz)
    values (${name}, ${pattern}, ${tz})
    on conflict (name) do update
      set pattern = excluded.pattern, tz = excluded.tz, set_at = clock_timestamp()
      where (held.pattern, held.tz) <> (excluded.pattern, excluded.tz)`;
  await execute(db, 'record a schedule', change);
}

/** What a scheduled time is for: nightly runs, or the audits of one list. */
export interface ScheduledWork {
  /** The name of the schedule in `mirror.schedules`. */
  readonly schedule: 'nightly' | 'audit';
  readonly kind: RunKind;
  readonly subject: string;
}

/** What became of a scheduled time. */
export interface ScheduledTimeState {
  /** True if nothing has to be started for it. */
  readonly isSettled: boolean;
  /** How many of its runs have failed, or ended because the source was away. */
  readonly failed: number;
  /** When the last of these ended, in milliseconds since 1970; null if there is none. */
  readonly lastFailedMs: number | null;
}

/**
 * A scheduled time is settled by a run that is open, or that ended after it and brought
 * something. A nightly run counts whatever its subject; a sync only if it read the whole
 * list. A time is also settled if the mirror, or the schedule, is younger. What ended in
 * the future does not count: its clock was ahead.
 *
 * @param dueMs the scheduled time, in milliseconds since 1970
 * @param nowMs the present by the database's clock
 */
export async function readScheduledTime(
  db: Database,
  { schedule, kind, subject }: ScheduledWork,
  { pattern, tz }: Schedule,
  dueMs: number,
  nowMs: number,
): Promise<ScheduledTimeState> {
  const dueAt = new Date(dueMs).toISOString();
  const latestAt = new Date(nowMs + CLOCK_TOLERANCE_MS).toISOString();
  const state = statement({
    isSettled: 'boolean',
    failed: 'int',
    lastFailedMs: 'bigint?',
  })`
    with attempts as (
      select state in ('queued', 'running') as is_open, finished_at,
             verdict = 'failed' or evidence ? 'sourceAway' or evidence->'error' ? 'sourceAway'
               or evidence->'exports' ? 'sourceAway' as has_failed
        from mirror.runs
       where kind = ${kind}
         and (kind = 'nightly' or (subject = ${subject} and params->>'full' = 'true'))
         and (state in ('queued', 'running')
              or finished_at between ${dueAt}::timestamptz and ${latestAt}::timestamptz)),
    younger as (
      select from mirror.identity
       where created_at > ${dueAt}::timestamptz and created_at <= ${latestAt}::timestamptz
      union all
      select from mirror.schedules
       where name = ${schedule}
         and ((pattern, tz) <> (${pattern}, ${tz}) or set_at > ${dueAt}::timestamptz))
    select count(*) filter (where is_open or has_failed is not true) > 0
             or exists (select from younger) as "isSettled",
           (count(*) filter (where has_failed and not is_open))::int as failed,
           (extract(epoch from max(finished_at) filter (where has_failed)) * 1000)::bigint
             as "lastFailedMs"
      from attempts`;
  const { lastFailedMs, ...counts } = await readRow(
    db,
    'look for the run of a scheduled time',
    state,
  );

  return {
    ...counts,
    lastFailedMs: lastFailedMs === null ? null : Number(lastFailedMs),
  };
}
