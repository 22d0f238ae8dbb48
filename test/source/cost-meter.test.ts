import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { CostMeter } from '../../src/source/cost-meter.ts';
import type { RequestReport, Route } from '../../src/source/ports.ts';

function report(
  route: Route,
  more: Partial<RequestReport> = {},
): RequestReport {
  return {
    route,
    status: 200,
    durationMs: 1,
    bytes: 10,
    attempt: 1,
    errorCode: undefined,
    ...more,
  };
}

test('the cost meter tells concurrent requests apart by their run, and passes all on to the next observer', async () => {
  const told: Route[] = [];
  const meter = new CostMeter({
    onRequest: ({ route }) => told.push(route),
    onWait: () => undefined,
  });
  await Promise.all([
    meter.during('sync', async () => {
      await sleep(2);
      meter.onRequest(report('parties'));
      meter.onWait({ route: 'parties', reason: 'rate', waitMs: 1.6 });
      await sleep(2);
      meter.onRequest(report('checkpoints', { attempt: 2, status: 500 }));
    }),
    meter.during('ledger', async () => {
      await sleep(3);
      meter.onRequest(report('export', { errorCode: 'SOURCE_BROKE' }));
    }),
  ]);
  meter.onRequest(report('export'));
  expect(told).toHaveLength(4);
  const costs = Object.fromEntries(meter.take());
  expect(costs['sync']).toEqual({
    requests: { lists: 2, exports: 0 },
    retries: 1,
    failures: 1,
    bytes: 20,
    waitedMs: 2,
  });
  expect(costs['ledger']).toMatchObject({
    requests: { lists: 0, exports: 1 },
    failures: 1,
  });
  expect(meter.take()).toEqual([]);
});

test('what a run asks after its counts were taken is counted too', async () => {
  const meter = new CostMeter({
    onRequest: () => undefined,
    onWait: () => undefined,
  });
  await meter.during('run', async () => {
    meter.onRequest(report('export'));
    expect(meter.take()).toHaveLength(1);
    meter.onRequest(report('export'));
  });
  expect(meter.take()).toMatchObject([
    ['run', { requests: { lists: 0, exports: 1 } }],
  ]);
});
