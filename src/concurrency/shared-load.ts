/** Loads a value once for all callers while it is fresh. */

/**
 * @param maxAgeMs counted from the start of the loading; a failed one is not kept
 * @param usableMs a value that is older than that, and not than this, is told while the next one is loaded
 */
export function sharedLoad<Value>(
  load: () => Promise<Value>,
  maxAgeMs = Number.POSITIVE_INFINITY,
  usableMs = maxAgeMs,
): () => Promise<Value> {
  let current: { readonly value: Promise<Value>; readonly since: number } | undefined;
  let last: typeof current;
  return () => {
    const nowMs = performance.now();
    if (current === undefined || nowMs - current.since >= maxAgeMs) {
      const loading = { value: load(), since: nowMs };
      current = loading;
      loading.value.then(
        () => (last = loading),
        () => {
          if (current === loading) current = undefined;
        },
      );
    }
    return last !== undefined && nowMs - last.since < usableMs
      ? last.value
      : current.value;
  };
}
