/**
 * Makes up for scheduled times that had no run, or whose nightly runs have all failed:
 * workers start a run for them. All times are by the database's clock, because the
 * workers' clocks may be off.
 */
import type { Database } from '../../postgres/database.ts';
import {
  lastScheduledMs,
  nextScheduledMs,
  type Schedule,
  type Schedules,
} from '../../time/scheduled-times.ts';
import { enqueueRun } from '../enqueue.ts';
import type { JobDeps } from '../job.ts';
import { readNowMs, readScheduledTime } from '../store/schedule-store.ts';
import {
  dueAgainMs,
  LATE_MS,
  namePassedOver,
  type ScheduledTimeState,
} from './scheduled-time.ts';
import {
  FIRST_RUN_KEY,
  formatScheduleKey,
  type ScheduleKey,
} from './schedule-key.ts';
import { SCHEDULED, type ScheduledRun } from './schedules.ts';

type MakeUpDeps = Pick<JobDeps, 'db' | 'runs' | 'queue' | 'log'>;

/**
 * Finds the last scheduled time if no nightly run was started for it.
 * @returns that time in milliseconds since 1970; undefined if nothing was missed
 */
export async function findMissedMs(
  schedule: Schedule,
  db: Database,
  nowMs: number,
): Promise<number | undefined> {
  const dueMs = lastScheduledMs(schedule, nowMs);
  if (nowMs - dueMs < LATE_MS) return undefined;

  const state = await readScheduledTime(
    db,
    SCHEDULED.nightly,
    schedule,
    dueMs,
    nowMs,
  );
  return state.isSettled || state.failed > 0 ? undefined : dueMs;
}

/**
 * Starts a run for a scheduled time that was missed, or whose nightly runs have failed.
 * @param lateMs how late the queue may be; more if this worker's clock is behind
 */
export async function makeUpMissed(
  scheduled: ScheduledRun,
  schedules: Schedules,
  deps: MakeUpDeps,
  nowMs?: number,
  lateMs = LATE_MS,
): Promise<void> {
  const presentMs = nowMs ?? (await readNowMs(deps.db));
  const schedule = schedules[scheduled.schedule];
  const dueMs = lastScheduledMs(schedule, presentMs);
  const state = await readScheduledTime(
    deps.db,
    scheduled,
    schedule,
    dueMs,
    presentMs,
  );

  const beginMs = dueAgainMs(state, scheduled.kind, dueMs, lateMs);
  if (state.isSettled || presentMs < beginMs) return;
  await beginAgain(scheduled, state, { dueMs, presentMs, schedule }, deps);
}

interface DueTime {
  readonly dueMs: number;
  readonly presentMs: number;
  readonly schedule: Schedule;
}

async function beginAgain(
  scheduled: ScheduledRun,
  { failed, knownSinceMs }: ScheduledTimeState,
  { dueMs, presentMs, schedule }: DueTime,
  deps: MakeUpDeps,
): Promise<void> {
  const { kind, params = {} } = scheduled;
  const isNightly = kind === 'nightly';
  const time: ScheduleKey = { id: scheduled.id, dueMs };
  const timeKey = formatScheduleKey(time);

  if (failed === 0) {
    const what = isNightly ? 'A nightly run' : 'An audit';
    const passedOver = namePassedOver(schedule, knownSinceMs, dueMs);
    deps.log.warn(
      { scheduleKey: timeKey, passedOver },
      passedOver.length === 0
        ? `${what} was missed and is made up for now`
        : `${what} was missed and is made up for now; one run replaces all ` +
            'that were missed',
    );
  } else {
    const nextAt = new Date(nextScheduledMs(schedule, presentMs)).toISOString();
    deps.log.warn(
      { scheduleKey: timeKey, failed, nextAt },
      'The nightly run failed and is tried again',
    );
  }

  const nightlySubject =
    failed === 0 ? 'scheduled, made up' : 'scheduled, again';
  const subject = isNightly ? nightlySubject : scheduled.subject;
  const given = { kind, subject, params };
  // The run that failed may be the previous night's, if that night ended late. So the run
  // for this scheduled time is first created under the time's own key, where a job that
  // the queue delivers late finds it. A key for a retry is used only once that run has
  // been tried.
  const own = await deps.runs.create({ ...given, scheduleKey: timeKey });
  const isTried = own.state === 'done' || own.state === 'cancelled';
  const run =
    failed > 0 && isTried
      ? await deps.runs.create({
          ...given,
          scheduleKey: formatScheduleKey({
            ...time,
            repeat: { kind: 'again', failed },
          }),
        })
      : own;
  await enqueueRun(run, deps);
}

/**
 * Starts the first nightly run if the mirror is empty, without waiting for the schedule.
 * Only one run is started, however many workers there are.
 */
export async function startFirstRun(
  deps: Pick<JobDeps, 'runs' | 'queue' | 'log'>,
): Promise<void> {
  const nights = await deps.runs.list({ kind: 'nightly', limit: 1 });
  if (nights.length > 0) return;

  const run = await deps.runs.create({
    kind: 'nightly',
    subject: 'first',
    scheduleKey: FIRST_RUN_KEY,
  });
  deps.log.info(
    { runId: run.runId },
    'The mirror is empty: its first nightly run starts now',
  );
  await enqueueRun(run, deps);
}
