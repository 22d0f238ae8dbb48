/** Metrics that cannot be measured are named. */
import { tmpdir } from 'node:os';
import { expect, test } from 'vitest';
import type { Log } from '../../src/logging/log.ts';
import type { Queues } from '../../src/queue/queues.ts';
import {
  addReadMetrics,
  MetricsRegistry,
} from '../../src/observability/metrics.ts';

test('says in the log what was not measured', async () => {
  const away = async (): Promise<never> => {
    throw new Error('away');
  };
  const told: unknown[] = [];
  const registry = new MetricsRegistry();
  addReadMetrics(registry, {
    queues: { depth: away, pulses: () => [] } as unknown as Queues,
    probes: [{ name: 'objects', check: away }],
    dataDir: tmpdir(),
    readRuns: away,
    readNights: away,
    log: {
      debug: ({ what }: { what?: string }) => told.push(what),
    } as unknown as Log,
  });
  await registry.metrics();
  expect(new Set(told)).toEqual(
    new Set(['export', 'load', 'nightly', 'objects', 'runs', 'sync']),
  );
});
