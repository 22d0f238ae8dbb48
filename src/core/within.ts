/**
 * The result of `work`, or after `limitMs` the error: a host that is gone says nothing for hours.
 * What is late is aborted, and left to itself.
 * @param late makes the error
 */
export async function within<Result>(
  limitMs: number,
  work: (signal: AbortSignal) => Promise<Result>,
  late: () => Error,
): Promise<Result> {
  const limit = new AbortController();
  const over = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    const error = late();
    over.reject(error);
    limit.abort(error);
  }, limitMs).unref();
  try {
    return await Promise.race([work(limit.signal), over.promise]);
  } finally {
    clearTimeout(timer);
  }
}
