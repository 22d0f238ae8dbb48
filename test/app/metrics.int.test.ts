/**
 * Metrics of the whole application: those that are documented, counting what really
 * happens.
 */
import { readFile } from 'node:fs/promises';
import { get, type IncomingMessage } from 'node:http';
import { once } from 'node:events';
import { afterAll, describe, expect, test } from 'vitest';
import { serveWorkerHealth } from '../../src/app/serving/serve-worker-health.ts';
import { startSandbox } from '../support/sandbox.ts';
import { waitFor } from '../support/wait-for.ts';
import { startRealApp } from './real-app.ts';

const TOKEN = 'a-token-for-the-metrics';
const STORES = ['database', 'queues', 'objects'];
const headers = {
  authorization: `Bearer ${TOKEN}`,
  'content-type': 'application/json',
};
const sandbox = await startSandbox({
  parties: 3,
  entriesMean: 200,
  rateLimit: 'none',
  seed: 'metrics',
});
const mirror = await startRealApp({
  SOURCE_URL: sandbox.url,
  API_TOKEN: TOKEN,
});
afterAll(async () => {
  await mirror[Symbol.asyncDispose]();
  await sandbox.stop();
});

const documentation = await readFile(
  new URL('../../docs/metrics.md', import.meta.url),
  'utf8',
);

function documented(...parts: readonly string[]): ReadonlySet<string> {
  const rows = documentation.matchAll(
    /^\| `(ledger_mirror_\w+)` \| (\w+) \|.*\| (\w+) \|$/gm,
  );
  return new Set(
    [...rows].flatMap(([, name, type, part]) =>
      parts.includes(part ?? '') ? [`${name} ${type}`] : [],
    ),
  );
}

function served(text: string): ReadonlySet<string> {
  return new Set(
    [...text.matchAll(/^# TYPE (ledger_mirror_\w+ \w+)$/gm)].map(
      ([, line]) => line ?? '',
    ),
  );
}

/** One sample's value; undefined if there is no such line. */
function value(text: string, sample: string): number | undefined {
  const line = text
    .split('\n')
    .find((candidate) => candidate.startsWith(`${sample} `));
  return line === undefined ? undefined : Number(line.slice(sample.length + 1));
}

async function metrics(): Promise<string> {
  return (await fetch(`${mirror.url}/metrics`, { headers })).text();
}

async function exported(partyId: string | undefined): Promise<string> {
  const init = { method: 'POST', headers, body: JSON.stringify({ partyId }) };
  const { id } = (await (
    await fetch(`${mirror.url}/mirror/exports`, init)
  ).json()) as {
    id: string;
  };
  await waitFor(
    async () => (await mirror.app.jobs.runs.get(id))?.state === 'done',
    {
      what: 'the export',
    },
  );
  return id;
}

describe('metrics', () => {
  test('are those that are documented, of the types that are documented', async () => {
    expect(served(await metrics())).toEqual(
      documented('api', 'work', 'places', 'runs', 'process'),
    );
  });

  test('count requests, retries, jobs and progress, and name nobody', async () => {
    const [first] = [...sandbox.truth.parties()];
    const answer = {
      status: 503,
      body: '{"code":14,"message":"x","details":[]}',
    };
    sandbox.faults.once('parties', { answer });
    await exported(first?.id);
    // A run is done a moment before its job is, and queues and stores are asked now and
    // then.
    const text = await waitFor(
      async () => {
        const now = await metrics();
        const isOver =
          value(
            now,
            'ledger_mirror_jobs_total{queue="export",outcome="done"}',
          ) === 1 &&
          value(
            now,
            'ledger_mirror_queue_jobs{queue="export",state="active"}',
          ) === 0 &&
          value(
            now,
            'ledger_mirror_last_success_timestamp_seconds{kind="export"}',
          ) !== undefined &&
          STORES.every(
            (store) =>
              value(now, `ledger_mirror_store_up{store="${store}"}`) === 1,
          );
        return isOver ? now : undefined;
      },
      { what: 'the job to be over, and every store to have answered' },
    );
    const route = 'route="export"';
    expect(
      value(
        text,
        'ledger_mirror_source_requests_total{route="parties",status="503"}',
      ),
    ).toBe(1);
    expect(
      value(text, 'ledger_mirror_source_retries_total{route="parties"}'),
    ).toBe(1);
    expect(
      value(
        text,
        'ledger_mirror_source_waits_total{route="parties",reason="retry"}',
      ),
    ).toBe(1);
    expect(
      value(text, `ledger_mirror_source_requests_total{${route},status="200"}`),
    ).toBeGreaterThan(0);
    expect(
      value(text, `ledger_mirror_source_received_bytes_total{${route}}`),
    ).toBeGreaterThan(1_000);
    expect(
      value(text, 'ledger_mirror_progress_done{task="exporting",unit="bytes"}'),
    ).toBeGreaterThan(0);
    for (const store of STORES)
      expect(
        value(text, `ledger_mirror_store_seconds_count{store="${store}"}`),
      ).toBeGreaterThan(0);
    expect(
      value(text, 'ledger_mirror_worker_quiet_seconds{queue="export"}'),
    ).toBeLessThan(60);
    expect(
      value(text, 'ledger_mirror_runs_total{kind="export",verdict="complete"}'),
    ).toBe(1);
    expect(
      value(text, 'ledger_mirror_runs_total{kind="nightly",verdict="failed"}'),
    ).toBe(0);
    expect(
      value(
        text,
        'ledger_mirror_last_success_timestamp_seconds{kind="export"}',
      ),
    ).toBeGreaterThan(1.7e9);
    expect(
      value(
        text,
        'ledger_mirror_next_scheduled_timestamp_seconds{kind="nightly"}',
      ),
    ).toBeGreaterThan(Date.now() / 1_000 - 60);
    expect(value(text, 'ledger_mirror_data_dir_free_bytes')).toBeGreaterThan(0);
    expect(text).toMatch(
      /^ledger_mirror_build_info\{version="[\d.]+",node="24\.[\d.]+"\} 1$/m,
    );
    for (const secret of [first?.id ?? '', sandbox.url, TOKEN])
      expect(text).not.toContain(secret);
  });

  test('keep one series for all files of the console', async () => {
    for (const file of ['console.css', 'icon.svg', 'main.js'])
      await fetch(`${mirror.url}/assets/${file}`, { headers });
    const text = await waitFor(
      async () => {
        const now = await metrics();
        return (value(
          now,
          'ledger_mirror_http_request_seconds_count{route="/assets/*"}',
        ) ?? 0) >= 3
          ? now
          : undefined;
      },
      { what: 'the requests to be counted' },
    );
    expect(text).not.toContain('/assets/console.css');
  });

  test('are served by a worker beside its health, to those who know the token', async () => {
    await using worker = await serveWorkerHealth(mirror.app, 0);
    const url = `http://127.0.0.1:${worker.port}`;
    const health = await fetch(`${url}/`);
    expect([health.status, await health.json()]).toMatchObject([
      200,
      { status: 'ok' },
    ]);
    expect((await fetch(`${url}/metrics`)).status).toBe(401);
    const text = await (await fetch(`${url}/metrics`, { headers })).text();
    // One process tells the same at each of its ports: this one serves the API as well.
    expect(served(text)).toEqual(
      documented('api', 'work', 'places', 'runs', 'process'),
    );
    expect(text).toContain('process_cpu_seconds_total');
  });

  test('are served by a worker without a token only under a name of this machine', async () => {
    const { app } = mirror;
    const open = { ...app, readTokens: undefined };
    await using worker = await serveWorkerHealth(open, 0);
    const { port } = worker;
    const statusUnder = async (host: string): Promise<number | undefined> => {
      const request = get({ port, path: '/metrics', headers: { host } });
      const [response] = (await once(request, 'response')) as [IncomingMessage];
      response.resume();
      return response.statusCode;
    };
    expect(await statusUnder(`localhost:${port}`)).toBe(200);
    expect(await statusUnder('rebound.example')).toBe(401);
  });
});
