/**
 * Waits for something to become true, with a limit. Tests must not wait in any other way.
 */
import { setTimeout as sleep } from 'node:timers/promises';

const POLL_MS = 10;
/**
 * The longest wait. It only matters for a wait that would never succeed, so it need not
 * be short.
 */
const WAIT_MAX_MS = 120_000;

/**
 * Calls `condition` until it returns something truthy, and returns that.
 * @throws Error naming `what` after `timeoutMs`; an error from `condition` is thrown at
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
