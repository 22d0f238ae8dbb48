/** Scheduled times that were missed, or whose nightly run failed: noticed, and made up. */
import type { Database } from '../../postgres/database.ts';
import { enqueueRun } from '../enqueue.ts';
import type { JobDeps } from '../job.ts';
import { hasAuditSince, readScheduledTime } from '../store/nightly/scheduled-runs.ts';
import {
  auditScheduleKey,
  lastScheduledMs,
  nextScheduledMs,
  nightlyScheduleKey,
  type Schedule,
} from './schedule.ts';

/** The queue may be this late before a scheduled time counts as missed. */
const LATE_MS = 2 * 60_000;
/** A nightly run that failed is tried again after so long, then after twice as long, and so on. */
const RETRY_MIN_MS = 5 * 60_000;
const RETRY_MAX_MS = 2 * 3_600_000;
const LISTS = ['parties', 'checkpoints'] as const;

type MakeUpDeps = Pick<JobDeps, 'db' | 'runs' | 'queue' | 'log'>;

/** @returns the last scheduled time, in milliseconds since 1970, where no nightly run was there for it */
export async function findMissedMs(
  schedule: Schedule,
  db: Database,
  nowMs: number,
): Promise<number | undefined> {
  const dueMs = lastScheduledMs(schedule, nowMs);
  if (nowMs - dueMs < LATE_MS) return undefined;
  const { isCaredFor, failed } = await readScheduledTime(db, new Date(dueMs).toISOString());
  return isCaredFor || failed > 0 ? undefined : dueMs;
}

/** Starts the run of a scheduled time that was missed, or whose runs have failed until now. */
export async function makeUpMissedRun(schedule: Schedule, deps: MakeUpDeps, nowMs: number): Promise<void> {
  const dueMs = lastScheduledMs(schedule, nowMs);
  const { isCaredFor, failed, lastFailedAt } = await readScheduledTime(
    deps.db,
    new Date(dueMs).toISOString(),
  );
  if (isCaredFor || (failed === 0 && nowMs - dueMs < LATE_MS)) return;
  const waitMs = Math.min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** Math.max(0, Math.min(failed, 10) - 1));
  if (lastFailedAt !== null && nowMs - Date.parse(lastFailedAt) < waitMs) return;
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
    if (await hasAuditSince(deps.db, list, new Date(dueMs).toISOString())) continue;
    const scheduleKey = auditScheduleKey(list, dueMs);
    deps.log.warn({ scheduleKey }, 'An audit was missed and is made up now');
    const run = await deps.runs.create({ kind: 'sync', subject: list, scheduleKey, params: { full: true } });
    await enqueueRun(run, deps);
  }
}

/** A mirror that holds nothing does not wait for its schedule: one run, however many workers start at once. */
export async function startFirstRun(deps: Pick<JobDeps, 'runs' | 'queue' | 'log'>): Promise<void> {
  const former = await deps.runs.list({ kind: 'nightly', limit: 1 });
  if (former.length > 0) return;
  const run = await deps.runs.create({ kind: 'nightly', subject: 'first', scheduleKey: 'first' });
  deps.log.info({ runId: run.runId }, 'The mirror holds nothing: its first nightly run starts now');
  await enqueueRun(run, deps);
}
