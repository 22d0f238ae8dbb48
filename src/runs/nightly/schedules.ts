/**
 * The runs that are started by a schedule (nightly runs, and audits of both lists), and
 * how the queue triggers them.
 */
import type { JobData } from '../../queue/backend.ts';
import type { Queues } from '../../queue/queues.ts';
import { lastScheduledMs, type Schedules } from '../../time/scheduled-times.ts';
import { RetryableError } from '../../errors/errors.ts';
import { JOBS, type JobContext, type JobDeps } from '../job.ts';
import {
  readNowMs,
  readScheduledTime,
  readScheduleInForce,
  readScheduleSinceMs,
  recordSchedule,
  type ReplacedSchedule,
} from '../store/schedule-store.ts';
import type { Run } from '../store/run-store.ts';
import {
  earlyByMs,
  isBeforeSchedule,
  listReplaced,
  namePassedOver,
  nameTimes,
} from './scheduled-time.ts';
import {
  formatScheduleKey,
  parseScheduleKey,
  type ScheduleId,
  type ScheduleKey,
} from './schedule-key.ts';
import { otherSource } from '../work-run.ts';

/** A run that a schedule starts. */
export interface ScheduledRun {
  /** The id of the run's schedule in the queue. */
  readonly id: ScheduleId;
  readonly schedule: keyof Schedules;
  readonly kind: 'nightly' | 'sync';
  readonly subject: string;
  readonly params?: Run['params'];
  /** The payload of the job that the queue adds at each scheduled time. */
  readonly data: JobData;
}

export const SCHEDULED = {
  nightly: {
    id: 'nightly',
    schedule: 'nightly',
    kind: 'nightly',
    subject: 'scheduled',
    data: { scheduled: true },
  },
  parties: auditOf('parties'),
  checkpoints: auditOf('checkpoints'),
} as const satisfies Readonly<Record<string, ScheduledRun>>;

function auditOf(list: 'parties' | 'checkpoints'): ScheduledRun {
  return {
    id: `audit-${list}`,
    schedule: 'audit',
    kind: 'sync',
    subject: list,
    params: { full: true },
    data: { audit: list },
  };
}

/** How long a job that came early waits, at most, before it checks the clock again. */
const EARLY_WAIT_MAX_MS = 60_000;

interface KeepDeps {
  readonly queues: Pick<Queues, 'keepSchedule'>;
  readonly jobs: Pick<JobDeps, 'db' | 'source' | 'log'>;
  /** The schedules in force; all workers of a mirror share them. */
  readonly schedules: Schedules;
}

/**
 * Puts the schedules into the queue and records when they came into force. Workers call
 * this every 30 seconds, so that a flushed queue gets its schedules back within a minute.
 */
export async function keepSchedules(deps: KeepDeps): Promise<void> {
  const { queues, jobs, schedules } = deps;
  const replaced = await recordSchedule(jobs.db, 'nightly', schedules.nightly);
  if (replaced !== undefined) await reportReplaced(replaced, jobs);
  await recordSchedule(jobs.db, 'audit', schedules.audit);

  for (const scheduled of Object.values(SCHEDULED)) {
    const { id, schedule: name, kind, data } = scheduled;
    const schedule = schedules[name];
    const { queue, name: jobName } = JOBS[kind];
    const source = jobs.source === undefined ? {} : { source: jobs.source.id };

    const job = { name: jobName, data: { ...data, ...source } };
    if (await queues.keepSchedule(queue, id, schedule, job))
      jobs.log.info({ schedule: id, ...schedule }, 'Schedule set');
  }
}

/**
 * Returns the single run of a scheduled time, however often its job is delivered. A
 * nightly run does not start while the last one is still in progress.
 *
 * @param sourceId the source that the schedule's job is for
 * @returns undefined if no run is to start
 */
export async function claimScheduled(
  scheduled: ScheduledRun,
  sourceId: string | undefined,
  deps: Pick<JobDeps, 'db' | 'runs' | 'source' | 'log' | 'schedule'>,
  { dueMs }: Pick<JobContext, 'dueMs'>,
): Promise<string | undefined> {
  const { kind, subject, params = {} } = scheduled;
  if (sourceId !== undefined && sourceId !== deps.source?.id) {
    const what =
      kind === 'nightly' ? 'the scheduled nightly run' : 'the scheduled audit';
    throw otherSource(what, `source ${sourceId}`, deps.source?.url);
  }

  const time: ScheduleKey = { id: scheduled.id, dueMs };
  const scheduleKey = formatScheduleKey(time);
  const nowMs = await readNowMs(deps.db);
  const earlyMs = earlyByMs(dueMs, nowMs);
  if (earlyMs > 0)
    throw new RetryableError(
      `Cannot begin ${scheduleKey} yet: by the database's clock it is due in ` +
        `${Math.round(earlyMs / 1_000)} s; correct the clock of this worker`,
      {
        code: 'NOT_DUE_YET',
        retryAfterMs: Math.min(earlyMs, EARLY_WAIT_MAX_MS),
      },
    );
  if (await isBeforeItsSchedule(scheduled, dueMs, nowMs, deps))
    return undefined;
  if (kind === 'nightly' && (await isOtherNightGoing(time, deps)))
    return undefined;

  if (kind === 'nightly') await reportPassedOver(scheduled, dueMs, nowMs, deps);
  const run = await deps.runs.create({ kind, subject, params, scheduleKey });
  if (!(await isOfFuture(run, deps))) return run.runId;

  // A worker whose clock was ahead has already done the run scheduled for this time,
  // before it was due, with the data that the source had at that point.
  const again = formatScheduleKey({ ...time, repeat: { kind: 'at its time' } });
  deps.log.warn(
    { scheduleKey, runId: run.runId, finishedAt: run.finishedAt },
    'A clock was fast: the run for this time ended before it, and is repeated',
  );
  const anew = await deps.runs.create({
    kind,
    subject,
    params,
    scheduleKey: again,
  });
  return anew.runId;
}

/**
 * Logs the times of a replaced schedule that had no run, for example because the schedule
 * was changed after days without a worker. No run makes up for these times.
 */
async function reportReplaced(
  replaced: ReplacedSchedule,
  { db, log }: Pick<JobDeps, 'db' | 'log'>,
): Promise<void> {
  const { pattern, tz, knownSinceMs } = replaced;
  const nowMs = await readNowMs(db);
  const passedOver = namePassedOver(replaced, knownSinceMs, nowMs);
  if (passedOver.length > 0)
    log.warn(
      { pattern, tz, passedOver },
      'The schedule has changed: these times of the previous one had no run',
    );
}

/** Logs the scheduled times that a run replaces. */
async function reportPassedOver(
  scheduled: ScheduledRun,
  dueMs: number,
  nowMs: number,
  { db, log, schedule }: Pick<JobDeps, 'db' | 'log' | 'schedule'>,
): Promise<void> {
  const lastDueMs = lastScheduledMs(schedule, nowMs);
  const state = await readScheduledTime(
    db,
    scheduled,
    schedule,
    lastDueMs,
    nowMs,
  );
  const replaced = listReplaced(schedule, state, dueMs, nowMs);
  if (replaced.length > 0)
    log.warn(
      {
        scheduleKey: formatScheduleKey({ id: scheduled.id, dueMs }),
        passedOver: nameTimes(replaced),
      },
      'A nightly run starts late; it replaces all that were missed',
    );
}

/**
 * Whether the queue delivered a time that is older than its schedule. No run starts for
 * it, because a schedule counts from when it was set.
 */
async function isBeforeItsSchedule(
  scheduled: ScheduledRun,
  dueMs: number,
  nowMs: number,
  { db, log }: Pick<JobDeps, 'db' | 'log'>,
): Promise<boolean> {
  const inForce = await readScheduleInForce(db, scheduled.schedule);
  if (inForce === undefined || !isBeforeSchedule(inForce, dueMs, nowMs))
    return false;

  const lateMinutes = Math.round((nowMs - dueMs) / 60_000);
  log.warn(
    {
      scheduleKey: formatScheduleKey({ id: scheduled.id, dueMs }),
      lateMinutes,
    },
    'A scheduled time is older than its schedule, so no run starts for ' +
      'it; the clock of a worker is behind that of the database',
  );
  return true;
}

/**
 * Logs the scheduled times that passed while a nightly run was still in progress, which
 * can take days if the only worker was down. That run replaces them.
 */
export async function reportOverrun(
  { runId, startedAt, finishedAt }: Run,
  { db, log, schedule }: Pick<JobDeps, 'db' | 'log' | 'schedule'>,
): Promise<void> {
  if (startedAt === null || finishedAt === null) return;

  const sinceMs = await readScheduleSinceMs(db, 'nightly', schedule);
  if (sinceMs === undefined) return;
  const passedOver = namePassedOver(
    schedule,
    Math.max(Date.parse(startedAt), sinceMs),
    Date.parse(finishedAt),
  );
  if (passedOver.length > 0)
    log.warn(
      { runId, passedOver },
      'The nightly run lasted past later scheduled times, and replaces ' +
        'their runs',
    );
}

/** Whether a nightly run is in progress that is not for this scheduled time. */
async function isOtherNightGoing(
  time: ScheduleKey,
  { runs, log }: Pick<JobDeps, 'runs' | 'log'>,
): Promise<boolean> {
  const going = await runs.list({
    kind: 'nightly',
    states: ['queued', 'running'],
    limit: 10,
  });
  const other = going.find(
    (run) => parseScheduleKey(run.scheduleKey ?? '')?.dueMs !== time.dueMs,
  );
  if (other === undefined) return false;

  log.warn(
    { scheduleKey: formatScheduleKey(time), runId: other.runId },
    'Nightly run skipped: the last one is still running',
  );
  return true;
}

async function isOfFuture(
  { finishedAt }: Run,
  { db }: Pick<JobDeps, 'db'>,
): Promise<boolean> {
  if (finishedAt === null) return false;
  return Date.parse(finishedAt) > (await readNowMs(db));
}
