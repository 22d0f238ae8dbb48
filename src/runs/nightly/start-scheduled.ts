/** What begins by itself, nightly runs and the audits of both lists: when due, and when that was missed or has failed. */
import { CronExpressionParser } from 'cron-parser';
import type { Database } from '../../postgres/database.ts';
import type { Queues } from '../../queue/queues.ts';
import { enqueueRun } from '../enqueue.ts';
import { JOBS, type JobContext, type JobDeps } from '../job.ts';
import { readScheduledTime } from '../store/run-facts.ts';
import { otherSource } from '../work-run.ts';

/** The queue may be this late before a scheduled time counts as missed. */
const LATE_MS = 2 * 60_000;
/** A nightly run that failed is tried again after so long, then after twice as long, and so on. */
const RETRY_MIN_MS = 5 * 60_000;
const RETRY_MAX_MS = 2 * 3_600_000;

const audit = (list: 'parties' | 'checkpoints') =>
  ({
    id: `audit-${list}`,
    run: { kind: 'sync', subject: list, params: { full: true } },
    data: { audit: list },
  }) as const;

export const SCHEDULED = {
  nightly: {
    id: 'nightly',
    run: { kind: 'nightly', subject: 'scheduled' },
    data: { scheduled: true },
  },
  parties: audit('parties'),
  checkpoints: audit('checkpoints'),
} as const;

type Scheduled = (typeof SCHEDULED)[keyof typeof SCHEDULED];
type Schedule = JobDeps['schedule'];
export type Schedules = Readonly<Record<'nightly' | 'audit', Schedule>>;

const scheduleOf = ({ run }: Scheduled, { nightly, audit }: Schedules) =>
  run.kind === 'nightly' ? nightly : audit;

const timesAround = ({ pattern, tz }: Schedule, nowMs: number) =>
  CronExpressionParser.parse(pattern, { tz, currentDate: new Date(nowMs) });

export function lastScheduledMs(schedule: Schedule, nowMs: number): number {
  return timesAround(schedule, nowMs).prev().getTime();
}

export function nextScheduledMs(schedule: Schedule, nowMs: number): number {
  return timesAround(schedule, nowMs).next().getTime();
}

/** At most one run has this key. */
function nameTime({ id }: Scheduled, dueMs: number): string {
  return `${id.replace('-', ' ')} ${new Date(dueMs).toISOString()}`;
}

interface ScheduleDeps {
  readonly queues: Pick<Queues, 'keepSchedule'>;
  readonly jobs: JobDeps;
  readonly schedules: Schedules;
}

/** To be called every half minute: a flushed store has its schedules back within a minute. */
export async function keepSchedules({
  queues,
  jobs,
  schedules,
}: ScheduleDeps): Promise<void> {
  for (const scheduled of Object.values(SCHEDULED)) {
    const { id, run, data } = scheduled;
    const { queue, name } = JOBS[run.kind];
    const schedule = scheduleOf(scheduled, schedules);
    const job = {
      name,
      data: { ...data, ...(jobs.source && { source: jobs.source.id }) },
    };
    if (await queues.keepSchedule(queue, id, schedule, job))
      jobs.log.info({ schedule: id, ...schedule }, 'Schedule set');
  }
}

/**
 * One run for each scheduled time, however often its job is delivered; no nightly one while the last is still going.
 * @param sourceId of the source that the schedule's job is for
 */
export async function claimScheduled(
  scheduled: Scheduled,
  sourceId: string | undefined,
  deps: JobDeps,
  { dueMs }: Pick<JobContext, 'dueMs'>,
): Promise<string | undefined> {
  const { run } = scheduled;
  if (sourceId !== undefined && sourceId !== deps.source?.id) {
    const what =
      run.kind === 'nightly' ? 'the scheduled nightly run' : 'the scheduled audit';
    throw otherSource(what, `source ${sourceId}`, deps.source?.url);
  }
  const scheduleKey = nameTime(scheduled, dueMs);
  if (run.kind === 'nightly') {
    const going = await deps.runs.list({
      kind: 'nightly',
      states: ['queued', 'running'],
      limit: 10,
    });
    const other = going.find((one) => one.scheduleKey !== scheduleKey);
    if (other !== undefined) {
      deps.log.warn(
        { scheduleKey, runId: other.runId },
        'Nightly run skipped: the last one is still going',
      );
      return undefined;
    }
  }
  return (await deps.runs.create({ ...run, scheduleKey })).runId;
}

/** @returns the last scheduled time, in milliseconds since 1970, where no nightly run was there for it */
export async function findMissedMs(
  schedule: Schedule,
  db: Database,
  nowMs: number,
): Promise<number | undefined> {
  const dueMs = lastScheduledMs(schedule, nowMs);
  if (nowMs - dueMs < LATE_MS) return undefined;
  const { isCaredFor, failed } = await readScheduledTime(
    db,
    SCHEDULED.nightly.run,
    dueMs,
  );
  return isCaredFor || failed > 0 ? undefined : dueMs;
}

/** Starts the run of a scheduled time that was missed, or whose nightly runs have failed until now. */
export async function makeUpMissed(
  scheduled: Scheduled,
  schedules: Schedules,
  deps: Pick<JobDeps, 'db' | 'runs' | 'queue' | 'log'>,
  nowMs = Date.now(),
): Promise<void> {
  const { run } = scheduled;
  const isNightly = run.kind === 'nightly';
  const schedule = scheduleOf(scheduled, schedules);
  const dueMs = lastScheduledMs(schedule, nowMs);
  const { isCaredFor, failed, lastFailedAt } = await readScheduledTime(
    deps.db,
    run,
    dueMs,
  );
  if (isCaredFor || (failed === 0 ? nowMs - dueMs < LATE_MS : !isNightly)) return;
  const waitMs = Math.min(
    RETRY_MAX_MS,
    RETRY_MIN_MS * 2 ** Math.max(0, Math.min(failed, 10) - 1),
  );
  if (lastFailedAt !== null && nowMs - Date.parse(lastFailedAt) < waitMs) return;
  const timeKey = nameTime(scheduled, dueMs);
  const scheduleKey = failed === 0 ? timeKey : `${timeKey} again ${failed}`;
  const nextAt = new Date(nextScheduledMs(schedule, nowMs)).toISOString();
  const what = isNightly ? 'A nightly run' : 'An audit';
  if (failed === 0)
    deps.log.warn({ scheduleKey }, `${what} was missed and is made up now`);
  else
    deps.log.warn(
      { scheduleKey, failed, nextAt },
      'The nightly run failed and is tried again',
    );
  const subject = isNightly
    ? `scheduled, ${failed === 0 ? 'made up' : 'again'}`
    : run.subject;
  await enqueueRun(await deps.runs.create({ ...run, subject, scheduleKey }), deps);
}

/** A mirror that holds nothing does not wait for its schedule: one run, however many workers start at once. */
export async function startFirstRun(
  deps: Pick<JobDeps, 'runs' | 'queue' | 'log'>,
): Promise<void> {
  if ((await deps.runs.list({ kind: 'nightly', limit: 1 })).length > 0) return;
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
