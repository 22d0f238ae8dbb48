/** The metrics of a command, which ends before anybody scrapes it. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { openFreshDatabase } from '../../support/database.ts';
import { readCounter } from '../../support/otlp.ts';
import { startSandbox } from '../../support/sandbox.ts';
import { openHome } from '../mirror-home.ts';

test('nightly sends what it counted to the collector when it ends', async () => {
  await using stack = new AsyncDisposableStack();
  const bodies: Buffer[] = [];
  const collector = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      if (request.url === '/v1/metrics') bodies.push(Buffer.concat(chunks));
      response.end();
    });
  }).listen(0, '127.0.0.1');
  stack.defer(() => void collector.close());
  await once(collector, 'listening');
  const { port } = collector.address() as AddressInfo;
  const sandbox = stack.use(
    await startSandbox({ parties: 3, entriesMean: 10, rateLimit: 'none' }),
  );
  const database = stack.use(await openFreshDatabase());
  const home = stack.use(
    await openHome({
      SOURCE_URL: sandbox.url,
      DATABASE_URL: database.url,
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}`,
      OTEL_TRACES_EXPORTER: 'none',
    }),
  );

  const { code, stderr } = await home.run(['nightly']);

  expect({ code, stderr }).toMatchObject({ code: 0 });
  const [body = Buffer.alloc(0)] = bodies;
  expect(bodies).toHaveLength(1);
  const runs = readCounter(body, 'ledger_mirror_runs_total');
  expect(runs.get('nightly complete')).toBe(1);
  expect(runs.get('nightly failed')).toBe(0);
  const jobs = readCounter(body, 'ledger_mirror_jobs_total');
  expect(jobs.get('done nightly')).toBe(1);
  const requests = readCounter(body, 'ledger_mirror_source_requests_total');
  expect(requests.get('export 200')).toBe(3);
});
