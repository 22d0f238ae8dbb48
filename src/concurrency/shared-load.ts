/** Shares one loaded value among many callers. */

/**
 * Returns a function that loads a value, and returns the same value to all callers
 * while it is recent enough. The result of a failed load is not kept.
 * @param maxAgeMs a value older than this is loaded again; its age counts from the
 *   start of its load
 * @param usableMs a value older than `maxAgeMs` and younger than this is still returned
 *   while the next one is being loaded
 */
export function sharedLoad<Value>(
  load: () => Promise<Value>,
  maxAgeMs = Number.POSITIVE_INFINITY,
  usableMs = maxAgeMs,
): () => Promise<Value> {
  let current: Load<Value> | undefined;
  let last: Load<Value> | undefined;

  async function begin(nowMs: number): Promise<void> {
    const loading = { value: load(), sinceMs: nowMs };
    current = loading;
    try {
      await loading.value;
      last = loading;
    } catch {
      // The callers that are waiting for the value get the error.
      if (current === loading) current = undefined;
    }
  }

  return () => {
    const nowMs = performance.now();
    if (current === undefined || nowMs - current.sinceMs >= maxAgeMs)
      void begin(nowMs);
    const isLastUsable = last !== undefined && nowMs - last.sinceMs < usableMs;
    const shared = isLastUsable ? last : current;
    if (shared === undefined)
      throw new TypeError('a load begins before it is shared');
    return shared.value;
  };
}

interface Load<Value> {
  readonly value: Promise<Value>;
  /** When the load began (`performance.now()`). */
  readonly sinceMs: number;
}
