/** A slot of the schedule that was missed is noticed, and made up once. */
import { enqueueRun } from './enqueue.ts';
import type { JobDeps } from './job.ts';
import { lastSlotMs, slotName, type Schedule } from './slots.ts';

/** The queue may be this late before a slot counts as missed. */
const LATE_MS = 2 * 60_000;

/**
 * Starts the run of the last slot where none was started, was still going then, or came after it.
 * A mirror that was made after the slot has missed nothing.
 */
export async function makeUpMissedSlot(
  schedule: Schedule,
  deps: Pick<JobDeps, 'nightly' | 'runs' | 'queue' | 'log'>,
  nowMs: number,
): Promise<void> {
  const dueMs = lastSlotMs(schedule, nowMs);
  if (nowMs - dueMs < LATE_MS || (await deps.nightly.hasNightSince(new Date(dueMs).toISOString()))) return;
  const slot = slotName(dueMs);
  deps.log.warn({ slot }, 'A nightly run was missed and is made up now');
  const run = await deps.runs.create({ kind: 'nightly', subject: 'scheduled, made up', slot });
  await enqueueRun(run, deps);
}
