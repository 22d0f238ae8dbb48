import { expect, test } from 'vitest';
import { LatencyObserver } from '../../src/source/list-latency.ts';
import type { RequestReport } from '../../src/source/ports.ts';

function report(
  durationMs: number,
  more: Partial<RequestReport> = {},
): RequestReport {
  return {
    route: 'parties',
    status: 200,
    durationMs,
    bytes: 1,
    attempt: 1,
    errorCode: undefined,
    ...more,
  };
}

test('the latency of the source is measured by good answers of lists only', () => {
  const told: number[] = [];
  const observer = new LatencyObserver({
    onRequest: ({ durationMs }) => told.push(durationMs),
    onWait: ({ waitMs }) => told.push(waitMs),
  });
  observer.onRequest(report(900, { route: 'export' }));
  observer.onRequest(report(800, { status: 503 }));
  observer.onRequest(report(700, { errorCode: 'SOURCE_STATUS' }));
  observer.onWait({ route: 'parties', reason: 'rate', waitMs: 600 });
  expect(observer.listLatency()).toBeUndefined();
  for (const durationMs of [30, 10, 20]) observer.onRequest(report(durationMs));
  expect(observer.listLatency()).toEqual({ lastMs: 20, medianMs: 20 });
  expect(told).toHaveLength(7);
});

test('the latency of the source forgets old answers', () => {
  const observer = new LatencyObserver();
  for (let nth = 0; nth < 1_000; nth += 1)
    observer.onRequest(report(nth < 900 ? 5_000 : 5));
  expect(observer.listLatency()).toEqual({ lastMs: 5, medianMs: 5 });
});
