/** Loads a value once for all callers while it is fresh. */

/** @param maxAgeMs counted from the start of the loading; a failed one is not kept */
export function sharedLoad<Value>(
  load: () => Promise<Value>,
  maxAgeMs = Number.POSITIVE_INFINITY,
): () => Promise<Value> {
  let current: { readonly value: Promise<Value>; readonly since: number } | undefined;
  return () => {
    if (current !== undefined && performance.now() - current.since < maxAgeMs) return current.value;
    const loading = { value: load(), since: performance.now() };
    current = loading;
    loading.value.catch(() => {
      if (current === loading) current = undefined;
    });
    return loading.value;
  };
}
