/** A slot of the schedule that was missed is noticed, and made up once. */
import { enqueueRun } from './enqueue.ts';
import type { JobDeps } from './job.ts';
import { lastSlotMs, slotName, type Schedule } from './slots.ts';

/** The queue may be this late before a slot counts as missed. */
const LATE_MS = 2 * 60_000;

/**
 * The last slot, in milliseconds since 1970, where no run was started for it, was still going then, or came
 * after it. A mirror that was made after the slot has missed nothing.
 */
export async function missedSlotMs(
  schedule: Schedule,
  deps: Pick<JobDeps, 'nightly'>,
  nowMs: number,
): Promise<number | undefined> {
  const dueMs = lastSlotMs(schedule, nowMs);
  const isKept = nowMs - dueMs < LATE_MS || (await deps.nightly.hasNightSince(new Date(dueMs).toISOString()));
  return isKept ? undefined : dueMs;
}

/** Starts the run of a slot that was missed. */
export async function makeUpMissedSlot(
  schedule: Schedule,
  deps: Pick<JobDeps, 'nightly' | 'runs' | 'queue' | 'log'>,
  nowMs: number,
): Promise<void> {
  const dueMs = await missedSlotMs(schedule, deps, nowMs);
  if (dueMs === undefined) return;
  const slot = slotName(dueMs);
  deps.log.warn({ slot }, 'A nightly run was missed and is made up now');
  const run = await deps.runs.create({ kind: 'nightly', subject: 'scheduled, made up', slot });
  await enqueueRun(run, deps);
}
