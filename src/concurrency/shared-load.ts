/** Shares a loaded value among many callers. */

/**
 * Returns a function that loads a value and returns it to all callers while it is recent
 * enough. A failed load is not cached.
 * @param maxAgeMs how long a value may be reused, counted from the start of its load
 * @param usableMs up to what age an outdated value is still returned while the next one
 *   is being loaded
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
      // Callers that are already waiting for the value get the error.
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
