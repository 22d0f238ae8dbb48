/**
 * Scheduled times that had no run, or whose nightly runs have failed until now: workers
 * begin a run for them. All times are the database's, because workers' clocks may differ
 * from it.
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
import {
  readNowMs,
  readScheduledTime,
  type ScheduledTimeState,
} from '../store/schedule-store.ts';
import { SCHEDULED, type ScheduledRun, scheduleKeyOf } from './schedules.ts';

/** The queue may be this late before a scheduled time counts as missed. */
const LATE_MS = 2 * 60_000;

/**
 * How long a nightly run that failed waits: after the first failure, the second, and so
 * on.
 */
const RETRY_AFTER_MS = [5 * 60_000, 10 * 60_000, 20 * 60_000];
/** From the next failure on, until the next scheduled time. */
const RETRY_LAST_MS = 60 * 60_000;

type MakeUpDeps = Pick<JobDeps, 'db' | 'runs' | 'queue' | 'log'>;

/**
 * @returns the last scheduled time if no nightly run was there for it, in milliseconds
 *   since 1970; undefined if nothing was missed
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
 * Begins the run of a scheduled time that was missed, or whose nightly runs have failed.
 */
export async function makeUpMissed(
  scheduled: ScheduledRun,
  schedules: Schedules,
  deps: MakeUpDeps,
  nowMs?: number,
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

  if (state.isSettled || !isDueAgain(scheduled, state, dueMs, presentMs))
    return;
  await beginAgain(scheduled, state, { dueMs, presentMs, schedule }, deps);
}

function isDueAgain(
  { kind }: ScheduledRun,
  { failed, lastFailedMs }: ScheduledTimeState,
  dueMs: number,
  nowMs: number,
): boolean {
  if (failed === 0) return nowMs - dueMs >= LATE_MS;
  // The nightly run audits the lists as well; an audit that failed waits for it.
  if (kind !== 'nightly') return false;

  const waitMs = RETRY_AFTER_MS[failed - 1] ?? RETRY_LAST_MS;
  return lastFailedMs === null || nowMs - lastFailedMs >= waitMs;
}

interface DueTime {
  readonly dueMs: number;
  readonly presentMs: number;
  readonly schedule: Schedule;
}

async function beginAgain(
  scheduled: ScheduledRun,
  { failed }: ScheduledTimeState,
  { dueMs, presentMs, schedule }: DueTime,
  deps: MakeUpDeps,
): Promise<void> {
  const { kind, params = {} } = scheduled;
  const isNightly = kind === 'nightly';
  const timeKey = scheduleKeyOf(scheduled, dueMs);
  const scheduleKey = failed === 0 ? timeKey : `${timeKey} again ${failed}`;

  if (failed === 0) {
    const what = isNightly ? 'A nightly run' : 'An audit';
    deps.log.warn({ scheduleKey }, `${what} was missed and is made up now`);
  } else {
    const nextAt = new Date(nextScheduledMs(schedule, presentMs)).toISOString();
    deps.log.warn(
      { scheduleKey, failed, nextAt },
      'The nightly run failed and is tried again',
    );
  }

  const nightlySubject =
    failed === 0 ? 'scheduled, made up' : 'scheduled, again';
  const subject = isNightly ? nightlySubject : scheduled.subject;
  const run = await deps.runs.create({ kind, subject, params, scheduleKey });
  await enqueueRun(run, deps);
}

/**
 * A mirror that holds nothing does not wait for its schedule: one run, however many
 * workers start.
 */
export async function startFirstRun(
  deps: Pick<JobDeps, 'runs' | 'queue' | 'log'>,
): Promise<void> {
  const nights = await deps.runs.list({ kind: 'nightly', limit: 1 });
  if (nights.length > 0) return;

  const run = await deps.runs.create({
    kind: 'nightly',
    subject: 'first',
    scheduleKey: 'first',
  });
  deps.log.info(
    { runId: run.runId },
    'The mirror holds nothing: its first nightly run starts now',
  );
  await enqueueRun(run, deps);
}
