/** Posts a report to NOTIFY_URL. */
import pRetry from 'p-retry';
import { RetryableError } from '../core/errors.ts';

const POST_TIMEOUT_MS = 10_000;
const RETRIES = 2;

/** @returns a function that throws RetryableError `NOTIFY_FAILED` where the receiver does not accept */
export function posterTo(
  url: URL,
  version: string,
): (report: Readonly<Record<string, unknown>>) => Promise<void> {
  return (report) =>
    pRetry(
      async () => {
        const response = await fetch(url, {
          method: 'POST',
          headers: { 'content-type': 'application/json', 'user-agent': `ledger-mirror/${version}` },
          body: JSON.stringify(report),
          redirect: 'error',
          signal: AbortSignal.timeout(POST_TIMEOUT_MS),
        });
        await response.body?.cancel();
        if (response.ok) return;
        throw new RetryableError(
          `Cannot post the report to ${url.host}: status ${response.status}; check NOTIFY_URL`,
          {
            code: 'NOTIFY_FAILED',
            meta: { host: url.host, status: response.status },
          },
        );
      },
      { retries: RETRIES, randomize: true },
    );
}
