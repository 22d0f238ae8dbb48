/**
 * Records which schedules are in force, since when, and for which of their times a run
 * has taken place. All times are by the database's clock, because the workers' clocks may
 * differ from it and from each other.
 */
import { sql } from 'kysely';
import type { Database } from '../../postgres/database.ts';
import { findRow, readRow } from '../../postgres/run-statement.ts';
import { statement, typed } from '../../postgres/statement.ts';
import type { Schedule } from '../../time/scheduled-times.ts';
import {
  judgeScheduledTime,
  type ScheduledTimeState,
  type TimeRecord,
} from '../nightly/scheduled-time.ts';
import type { RunKind } from '../run-schema.ts';

/** Returns the database's time, in milliseconds since 1970. */
export async function readNowMs(db: Database): Promise<number> {
  const now = statement({ nowMs: 'bigint' })`
    select (extract(epoch from clock_timestamp()) * 1000)::bigint as "nowMs"`;
  const { nowMs } = await readRow(db, 'read the time', now);
  return Number(nowMs);
}

/**
 * Reads when a schedule came into force.
 * @returns milliseconds since 1970; undefined if it is not in force
 */
export async function readScheduleSinceMs(
  db: Database,
  name: 'nightly' | 'audit',
  { pattern, tz }: Schedule,
): Promise<number | undefined> {
  const reading = statement({ sinceMs: 'bigint' })`
    select (extract(epoch from set_at) * 1000)::bigint as "sinceMs" from mirror.schedules
     where name = ${name} and (pattern, tz) = (${pattern}, ${tz})`;
  const row = await findRow(db, 'read since when a schedule counts', reading);
  return row === undefined ? undefined : Number(row.sinceMs);
}

/** A schedule that the workers follow. */
export interface ScheduleInForce extends Schedule {
  /** When it took effect, in milliseconds since 1970. */
  readonly sinceMs: number;
}

/**
 * Reads the schedule that the workers follow, which may differ from this process's own.
 * @returns undefined if no worker has ever set one
 */
export async function readScheduleInForce(
  db: Database,
  name: 'nightly' | 'audit',
): Promise<ScheduleInForce | undefined> {
  const reading = statement({ pattern: 'text', tz: 'text', sinceMs: 'bigint' })`
    select pattern, tz, (extract(epoch from set_at) * 1000)::bigint as "sinceMs"
      from mirror.schedules where name = ${name}`;
  const row = await findRow(db, 'read the schedule in force', reading);
  if (row === undefined) return undefined;
  return { pattern: row.pattern, tz: row.tz, sinceMs: Number(row.sinceMs) };
}

/** A schedule that was replaced by another. */
export interface ReplacedSchedule extends Schedule {
  /** No run is missing up to this time, in milliseconds since 1970. */
  readonly knownSinceMs: number;
}

/**
 * Records a schedule as being in force from now on, unless it already is.
 * @returns the schedule that it replaces, if there was one
 */
export async function recordSchedule(
  db: Database,
  name: 'nightly' | 'audit',
  { pattern, tz }: Schedule,
): Promise<ReplacedSchedule | undefined> {
  const change = statement({
    replaced: typed<ReplacedSchedule | null>('json?'),
  })`
    with old as (
      select pattern, tz, set_at from mirror.schedules where name = ${name}),
    change as (
      insert into mirror.schedules as held (name, pattern, tz)
      values (${name}, ${pattern}, ${tz})
      on conflict (name) do update
        set pattern = excluded.pattern, tz = excluded.tz, set_at = clock_timestamp()
        where (held.pattern, held.tz) <> (excluded.pattern, excluded.tz)
      returning 1)
    select json_build_object('pattern', pattern, 'tz', tz, 'knownSinceMs',
        (extract(epoch from greatest(set_at, (select max(finished_at) from mirror.runs where kind = 'nightly'))) * 1000)::bigint)
        as replaced
      from old where exists (select from change)`;
  const row = await findRow(db, 'record a schedule', change);
  return row?.replaced ?? undefined;
}

/** What a scheduled time is for: nightly runs, or the audits of one list. */
export interface ScheduledWork {
  /** The name of the schedule in `mirror.schedules`. */
  readonly schedule: 'nightly' | 'audit';
  readonly kind: RunKind;
  readonly subject: string;
}

/**
 * Reads what is recorded about a scheduled time. A nightly run counts whatever its
 * subject; a sync counts only if it read the whole list.
 *
 * @param dueMs the scheduled time, in milliseconds since 1970
 * @param nowMs the current time by the database's clock, in milliseconds since 1970
 */
export async function readScheduledTime(
  db: Database,
  { schedule, kind, subject }: ScheduledWork,
  { pattern, tz }: Schedule,
  dueMs: number,
  nowMs: number,
): Promise<ScheduledTimeState> {
  const dueAt = new Date(dueMs).toISOString();
  const milliseconds = (column: string) =>
    sql`(extract(epoch from ${sql.ref(column)}) * 1000)::bigint`;
  const isForIt = sql`kind = ${kind}
    and (kind = 'nightly' or (subject = ${subject} and params->>'full' = 'true'))`;
  const reading = statement({ record: typed<TimeRecord>('json') })`
    select json_build_object(
      'attempts', (
        select coalesce(json_agg(json_build_object(
            'isOpen', state in ('queued', 'running'),
            'hasFailed', coalesce(verdict = 'failed' or evidence ? 'sourceAway'
              or evidence->'error' ? 'sourceAway' or evidence->'exports' ? 'sourceAway', false),
            'finishedMs', ${milliseconds('finished_at')})), '[]')
          from mirror.runs
         where ${isForIt}
           and (state in ('queued', 'running') or finished_at >= ${dueAt}::timestamptz)),
      'lastEndedMs', (select ${milliseconds('finished_at')} from mirror.runs
         where ${isForIt}
           and finished_at < ${dueAt}::timestamptz
         order by finished_at desc limit 1),
      'mirrorSinceMs', (select ${milliseconds('created_at')} from mirror.identity),
      'scheduleSinceMs', (select ${milliseconds('set_at')} from mirror.schedules
         where name = ${schedule} and (pattern, tz) = (${pattern}, ${tz})),
      'isOtherInForce', exists (select from mirror.schedules
         where name = ${schedule} and (pattern, tz) <> (${pattern}, ${tz}))) as record`;
  const { record } = await readRow(
    db,
    'look for the run of a scheduled time',
    reading,
  );
  return judgeScheduledTime(record, dueMs, nowMs);
}
