/** Scheduled times that were missed, or whose nightly run failed, are noticed and made up. */
import { enqueueRun } from '../enqueue.ts';
import type { JobDeps } from '../job.ts';
import { LATE_MS } from './missed-run.ts';
import {
  auditScheduleKey,
  lastScheduledMs,
  nextScheduledMs,
  nightlyScheduleKey,
  type Schedule,
} from './schedule.ts';

/** A nightly run that failed is tried again after so long, then after twice as long, and so on. */
const RETRY_MIN_MS = 5 * 60_000;
const RETRY_MAX_MS = 2 * 3_600_000;
const LISTS = ['parties', 'checkpoints'] as const;

type MakeUpDeps = Pick<JobDeps, 'scheduled' | 'runs' | 'queue' | 'log'>;

/** Starts the run of a scheduled time that was missed, or whose runs have failed until now. */
export async function makeUpMissedRun(schedule: Schedule, deps: MakeUpDeps, nowMs: number): Promise<void> {
  const dueMs = lastScheduledMs(schedule, nowMs);
  const scheduledAt = new Date(dueMs).toISOString();
  if (await deps.scheduled.hasRunSince(scheduledAt)) return;
  const { runs: failed, lastAt } = await deps.scheduled.failedSince(scheduledAt);
  if (failed === 0 && nowMs - dueMs < LATE_MS) return;
  const waitMs = Math.min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** Math.max(0, Math.min(failed, 10) - 1));
  if (lastAt !== null && nowMs - Date.parse(lastAt) < waitMs) return;
  const scheduleKey =
    failed === 0 ? nightlyScheduleKey(dueMs) : `${nightlyScheduleKey(dueMs)} again ${failed}`;
  const nextAt = new Date(nextScheduledMs(schedule, nowMs)).toISOString();
  if (failed === 0) deps.log.warn({ scheduleKey }, 'A nightly run was missed and is made up now');
  else deps.log.warn({ scheduleKey, failed, nextAt }, 'The nightly run failed and is tried again');
  const run = await deps.runs.create({
    kind: 'nightly',
    subject: failed === 0 ? 'scheduled, made up' : 'scheduled, again',
    scheduleKey,
  });
  await enqueueRun(run, deps);
}

/** The same for the audits of both lists. */
export async function makeUpMissedAudits(schedule: Schedule, deps: MakeUpDeps, nowMs: number): Promise<void> {
  const dueMs = lastScheduledMs(schedule, nowMs);
  if (nowMs - dueMs < LATE_MS) return;
  for (const list of LISTS) {
    if (await deps.scheduled.hasAuditSince(list, new Date(dueMs).toISOString())) continue;
    const scheduleKey = auditScheduleKey(list, dueMs);
    deps.log.warn({ scheduleKey }, 'An audit was missed and is made up now');
    const run = await deps.runs.create({ kind: 'sync', subject: list, scheduleKey, params: { full: true } });
    await enqueueRun(run, deps);
  }
}
