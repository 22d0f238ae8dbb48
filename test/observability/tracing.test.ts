/** Whether traces are sent. */
import { expect, test } from 'vitest';
import { createLog } from '../../src/logging/log.ts';
import { openTracing } from '../../src/observability/tracing.ts';

test.each([
  ['no collector', {}],
  [
    'traces left out',
    { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c', OTEL_TRACES_EXPORTER: 'none' },
  ],
  [
    'all of it off',
    { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c', OTEL_SDK_DISABLED: 'true' },
  ],
  ['what is no URL', { OTEL_EXPORTER_OTLP_ENDPOINT: 'collector' }],
] as const)('nothing is traced with %s', async (_what, ambient) => {
  expect(await openTracing(ambient, createLog('silent'))).toBeUndefined();
});
