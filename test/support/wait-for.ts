/** Waiting for something to become true, with a limit: the only way a test may wait. */
import { setTimeout as sleep } from 'node:timers/promises';

const POLL_MS = 10;
/** Nothing has a reason to be fast: this only ends what would never come. */
const WAIT_MAX_MS = 120_000;

/**
 * Asks `condition` until it answers something truthy, and returns that.
 * @throws Error naming `what` after `timeoutMs`; what `condition` throws comes out at
 *   once
 */
export async function waitFor<Value>(
  condition: () => Value | Promise<Value>,
  { timeoutMs = WAIT_MAX_MS, what }: { timeoutMs?: number; what: string },
): Promise<NonNullable<Value>> {
  const deadlineMs = performance.now() + timeoutMs;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (performance.now() > deadlineMs)
      throw new Error(`Waited ${timeoutMs} ms in vain: ${what}`);
    await sleep(POLL_MS);
  }
}
