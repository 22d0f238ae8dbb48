/**
 * Told to an OpenTelemetry collector: who orders an export and who works it are one
 * trace.
 */
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gunzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { startSandbox } from '../support/sandbox.ts';
import { waitFor } from '../support/wait-for.ts';
import { startRealApp } from './real-app.ts';

interface OtlpSpan {
  readonly name: string;
  readonly traceId: string;
  readonly kind: number;
}

interface OtlpRequest {
  readonly resourceSpans?: readonly {
    readonly resource: {
      readonly attributes: readonly {
        readonly key: string;
        readonly value: object;
      }[];
    };
    readonly scopeSpans: readonly { readonly spans: readonly OtlpSpan[] }[];
  }[];
}

test('traces follow a job from its queue to its worker, and the last are sent when the process ends', async () => {
  await using stack = new AsyncDisposableStack();
  const sandbox = stack.use(
    await startSandbox({
      parties: 2,
      entriesMean: 10,
      rateLimit: 'none',
      seed: 'traces',
    }),
  );
  const received: {
    path: string | undefined;
    headers: IncomingHttpHeaders;
    body: OtlpRequest;
  }[] = [];
  const collector = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const raw = Buffer.concat(chunks);
      const text =
        request.headers['content-encoding'] === 'gzip' ? gunzipSync(raw) : raw;
      const body = JSON.parse(text.toString()) as OtlpRequest;
      received.push({ path: request.url, headers: request.headers, body });
      response.end('{}');
    });
  }).listen(0, '127.0.0.1');
  stack.defer(() => void collector.close());
  await once(collector, 'listening');
  const { port } = collector.address() as AddressInfo;
  const mirror = await startRealApp({
    SOURCE_URL: sandbox.url,
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}/`,
    OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=a%20mirror',
  });
  try {
    const [party] = [...sandbox.truth.parties()];
    const order = await fetch(`${mirror.url}/mirror/exports`, {
      method: 'POST',
      body: JSON.stringify({ partyId: party?.id }),
      headers: { 'content-type': 'application/json' },
    });
    const { id } = (await order.json()) as { id: string };
    await waitFor(
      async () => (await mirror.app.jobs.runs.get(id))?.state === 'done',
      {
        what: 'the export',
      },
    );
  } finally {
    // The last spans are sent when the process stops.
    await mirror[Symbol.asyncDispose]();
  }
  const [traced] = received.filter(({ path }) => path === '/v1/traces');
  expect(traced).toMatchObject({ headers: { 'x-tenant': 'a mirror' } });
  const resource = traced?.body.resourceSpans?.[0]?.resource.attributes ?? [];
  expect(resource).toContainEqual({
    key: 'service.name',
    value: { stringValue: 'ledger-mirror' },
  });
  const spans = received.flatMap(({ body }) =>
    (body.resourceSpans ?? []).flatMap(({ scopeSpans }) =>
      scopeSpans.flatMap((scope) => scope.spans),
    ),
  );
  const worked = spans.find(
    ({ name }) => /export\b.*|process/i.test(name) && name.includes('process'),
  );
  const traceIds = new Set(
    spans
      .filter(({ traceId }) => traceId === worked?.traceId)
      .map(({ name }) => name),
  );
  expect(worked).toBeDefined();
  expect(traceIds.size).toBeGreaterThan(1);
  expect(received.map(({ path }) => path)).not.toContain('/v1/metrics');
});
