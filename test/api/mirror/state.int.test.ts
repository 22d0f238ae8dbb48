/** Status, runs, health, metrics and the interface document, over a real warehouse. */
import { readFile } from 'node:fs/promises';
import { randomUUID } from 'node:crypto';
import { Gauge } from 'prom-client';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { summarizeStatus } from '../../../src/status/status-summary.ts';
import { MetricsRegistry } from '../../../src/observability/metrics.ts';
import { waitFor } from '../../support/wait-for.ts';
import {
  EMPTY_FACTS,
  apiWithoutDatabase,
  freshWarehouse,
  startApi,
} from '../mirror.ts';
import { openWarehouse } from '../../../src/postgres/database.ts';
import {
  addGeneration,
  addParties,
  addRun,
} from '../../support/mirror-arrange.ts';

const warehouse = await freshWarehouse();
const { pool } = warehouse;
afterAll(() => warehouse[Symbol.asyncDispose]());
const PARTY = 'ab'.repeat(32);

function run(
  kind: string,
  subject: string,
  verdict: string | null,
  minutesAgo: number,
): Promise<string> {
  const begun = new Date(Date.now() - minutesAgo * 60_000);
  const end =
    verdict === null
      ? { state: 'running' }
      : { state: 'done', verdict, finished_at: new Date() };
  const times = { queued_at: begun, started_at: begun };
  return addRun(pool, {
    kind,
    subject,
    ...times,
    ...end,
    evidence: { rows: '7' },
  });
}

async function json(url: string): Promise<Record<string, unknown>> {
  const response = await fetch(url);
  if (!response.ok)
    throw new Error(
      `${url} answered ${response.status}: ${await response.text()}`,
    );
  return (await response.json()) as Record<string, unknown>;
}

beforeAll(async () => {
  await run('sync', 'parties', 'failed', 9);
  await run('sync', 'parties', 'complete', 8);
  await run('sync', 'checkpoints', 'incomplete', 7);
  await run('nightly', 'scheduled', 'complete', 6);
  await run('export', PARTY, null, 5);
  const head = {
    height: '18446744073709551615',
    time: '2023-05-01 10:00:00.123456Z',
  };
  await addGeneration(pool, { list: 'parties', ...head, isClaimed: true });
  await addParties(pool, [PARTY], 1);
});

describe('the status', () => {
  test('says what is proven, as of when, and what needs a person', async () => {
    await using api = await startApi(warehouse);
    const status = await json(`${api.url}/mirror/status`);
    expect(status).toMatchObject({
      whole: false,
      complete: false,
      sentence:
        'The mirror is not complete: 0 of 1 ledgers are covered; the list of checkpoints is not proven.',
      attention: [
        { what: 'the last sync of checkpoints was incomplete' },
        { what: '1 ledger not covered' },
      ],
      coverage: { listed: 1, covered: 0, neverAsked: 1 },
      epoch: 1,
      openRuns: '1',
      streams: [
        {
          name: 'parties',
          verdict: 'complete',
          rows: '1',
          asOfBlock: '18446744073709551615',
          asOfTime: expect.stringMatching(
            /^2023-05-01T10:00:00.123456/,
          ) as string,
        },
        {
          name: 'checkpoints',
          verdict: 'incomplete',
          rows: '0',
          asOfBlock: null,
          asOfTime: null,
        },
        { name: 'ledger', verdict: 'complete', rows: '0' },
      ],
    });
  });

  test.each([
    [{}, 'Nothing has been mirrored yet: no run has ended.', false],
    [
      { verdict: 'complete', asOfTime: '2023-05-01T10:00:00Z' },
      'The mirror is complete as of 2023-05-01 10:00 UTC.',
      true,
    ],
    [{ verdict: 'complete' }, 'The mirror is complete.', true],
    [
      { verdict: 'failed' },
      'The mirror is not complete: the list of parties, the list of checkpoints, and the ledgers are not proven.',
      false,
    ],
  ] as const)('sums up %j in one sentence', (stream, sentence, whole) => {
    const facts = {
      ...EMPTY_FACTS,
      streams: EMPTY_FACTS.streams.map((empty) => ({ ...empty, ...stream })),
    };
    expect(summarizeStatus(facts)).toMatchObject({ sentence, whole });
  });

  const complete = EMPTY_FACTS.streams.map((empty) => ({
    ...empty,
    verdict: 'complete' as const,
  }));

  test('is not complete while a listed ledger is not covered, and gives the share', () => {
    const coverage = {
      ...EMPTY_FACTS.coverage,
      listed: 1400,
      wanted: 1400,
      covered: 3,
      neverAsked: 1397,
    };
    expect(
      summarizeStatus({ ...EMPTY_FACTS, streams: complete, coverage }),
    ).toMatchObject({
      whole: false,
      complete: false,
      sentence: 'The mirror is not complete: 3 of 1,400 ledgers are covered.',
      attention: [
        { what: '1,397 ledgers not covered', action: { does: 'nightly' } },
      ],
    });
  });

  test('asks nobody to start a nightly run while one is under way', () => {
    const coverage = {
      ...EMPTY_FACTS.coverage,
      listed: 9,
      wanted: 9,
      covered: 3,
    };
    const [first] = summarizeStatus({
      ...EMPTY_FACTS,
      streams: complete,
      coverage,
      openNightlyRun: 'an-id',
    }).attention;
    expect(first).toMatchObject({
      todo: 'The nightly run under way asks for them.',
    });
    expect(first).not.toHaveProperty('action');
  });

  test('says what the last run of a stream came to', () => {
    const failed = complete.map((stream) =>
      stream.name === 'ledger'
        ? { ...stream, verdict: 'failed' as const }
        : stream,
    );
    expect(
      summarizeStatus({ ...EMPTY_FACTS, streams: failed }).attention,
    ).toMatchObject([
      {
        what: 'the last nightly run failed',
        why: 'the ledgers are not proven complete',
      },
    ]);
  });

  test('is complete for the configured parties only, and says so', () => {
    const coverage = {
      ...EMPTY_FACTS.coverage,
      listed: 1400,
      configured: 1,
      wanted: 1,
      covered: 1,
    };
    expect(
      summarizeStatus({ ...EMPTY_FACTS, streams: complete, coverage }),
    ).toMatchObject({
      whole: false,
      complete: true,
      sentence: 'The mirror is complete for 1 configured party.',
    });
  });

  test('is not complete while a configured party is not listed, and names it', () => {
    const coverage = {
      ...EMPTY_FACTS.coverage,
      configured: 1,
      wanted: 1,
      unlisted: 1,
      unlistedParties: ['mistyped'],
    };
    expect(
      summarizeStatus({ ...EMPTY_FACTS, streams: complete, coverage }),
    ).toMatchObject({
      complete: false,
      sentence:
        'The mirror is not complete: 0 of 1 ledgers are covered; 1 configured party is not listed.',
      attention: [
        {
          what: '1 configured party is not listed',
          why: 'the source does not list mistyped',
        },
      ],
    });
  });

  test('is not complete while the last verification found something', () => {
    const lastVerify = {
      verdict: 'failed',
      at: '2023-05-01T10:00:00Z',
      runId: 'an-id',
    } as const;
    expect(
      summarizeStatus({
        ...EMPTY_FACTS,
        streams: complete,
        lastVerify,
        coverage: { ...EMPTY_FACTS.coverage, hasFailedVerify: true },
      }),
    ).toMatchObject({
      complete: false,
      attention: [{ what: 'the last verification failed' }],
    });
  });

  test('is not complete while a doubt is open', () => {
    const doubt = {
      code: 'ROWS_INSERTED',
      message: 'rows appeared',
      since: '2023-05-01T10:00:00Z',
    };
    const lists = EMPTY_FACTS.lists.map((list) => ({
      ...list,
      doubts: [doubt],
    }));
    expect(
      summarizeStatus({
        ...EMPTY_FACTS,
        streams: complete,
        lists,
        coverage: { ...EMPTY_FACTS.coverage, openDoubts: 2 },
      }),
    ).toMatchObject({
      complete: false,
      attention: [
        {
          what: 'the list of parties is in doubt since 2023-05-01: ROWS_INSERTED',
        },
        {
          what: 'the list of checkpoints is in doubt since 2023-05-01: ROWS_INSERTED',
        },
      ],
    });
  });

  test('is not complete while something was left out', () => {
    const streams = EMPTY_FACTS.streams.map((empty) => ({
      ...empty,
      verdict: 'complete' as const,
    }));
    const gap = {
      belowKey: '1',
      aboveKey: '9',
      foundAt: '2023-05-01T10:00:00Z',
      isConfirmed: false,
    };
    const lists = EMPTY_FACTS.lists.map((list) => ({ ...list, gaps: [gap] }));
    const withGaps = summarizeStatus({
      ...EMPTY_FACTS,
      streams,
      lists,
      coverage: { ...EMPTY_FACTS.coverage, knownGaps: 2 },
    });
    expect(withGaps.whole).toBe(false);
    const aside = summarizeStatus({
      ...EMPTY_FACTS,
      streams,
      coverage: { ...EMPTY_FACTS.coverage, quarantined: 2 },
    });
    expect(aside).toMatchObject({
      whole: false,
      attention: [{ what: '2 ledgers quarantined' }],
    });
  });
});

describe('runs', () => {
  test('are listed newest first, page by page', async () => {
    await using api = await startApi(warehouse);
    const seen: unknown[] = [];
    let before = '';
    for (;;) {
      const { runs } = (await json(
        `${api.url}/mirror/runs?limit=2${before}`,
      )) as {
        runs: { runId: string; kind: string }[];
      };
      if (runs.length === 0) break;
      seen.push(...runs.map(({ kind }) => kind));
      before = `&before=${runs.at(-1)?.runId}`;
    }
    expect(seen).toEqual(['export', 'nightly', 'sync', 'sync', 'sync']);
  });

  test('can be filtered, and read one by one', async () => {
    await using api = await startApi(warehouse);
    const { runs } = (await json(`${api.url}/mirror/runs?kind=nightly`)) as {
      runs: { runId: string }[];
    };
    expect(runs).toHaveLength(1);
    expect(await json(`${api.url}/mirror/runs/${runs[0]?.runId}`)).toEqual(
      runs[0],
    );
    expect(runs[0]).toMatchObject({
      verdict: 'complete',
      state: 'done',
      evidence: { rows: '7' },
    });
    expect((await fetch(`${api.url}/mirror/runs/${randomUUID()}`)).status).toBe(
      404,
    );
  });

  test('can be filtered by their verdict and by the beginning of their subject', async () => {
    await using api = await startApi(warehouse);
    type Found = { runs: { subject: string; verdict: string | null }[] };
    const all = ((await json(`${api.url}/mirror/runs`)) as Found).runs;
    const search = async (filter: string) =>
      ((await json(`${api.url}/mirror/runs?${filter}`)) as Found).runs;
    expect(await search('verdict=complete')).toEqual(
      all.filter(({ verdict }) => verdict === 'complete'),
    );
    expect(await search('subject=check')).toEqual(
      all.filter(({ subject }) => subject === 'checkpoints'),
    );
    expect(await search('verdict=failed&subject=%25')).toEqual([]);
    expect((await fetch(`${api.url}/mirror/runs?verdict=good`)).status).toBe(
      400,
    );
  });

  test('can be filtered by when they started, in times as people write them', async () => {
    await using api = await startApi(warehouse);
    type Found = {
      runs: { runId: string; startedAt: string | null; queuedAt: string }[];
    };
    const search = async (filter: Readonly<Record<string, string>>) => {
      const query = new URLSearchParams(filter).toString();
      const found = (await json(`${api.url}/mirror/runs?${query}`)) as Found;
      return found.runs.map(({ runId }) => runId);
    };
    const { runs: all } = (await json(`${api.url}/mirror/runs`)) as Found;
    const ids = all.map(({ runId }) => runId);
    const startOf = ({ startedAt, queuedAt }: Found['runs'][number]) =>
      startedAt ?? queuedAt;
    const at = all.map(startOf).toSorted()[1] ?? '';
    const before = all.filter((one) => startOf(one) < at);
    expect(before.length).toBeGreaterThan(0);
    expect(await search({ until: at })).toEqual(
      before.map(({ runId }) => runId),
    );
    expect((await search({ since: at })).toSorted()).toEqual(
      all
        .filter((one) => startOf(one) >= at)
        .map(({ runId }) => runId)
        .toSorted(),
    );
    expect(await search({ since: '-1d' })).toEqual(ids);
    expect(await search({ since: '2020', until: '2020-02' })).toEqual([]);
    const refused = await fetch(`${api.url}/mirror/runs?since=03/04/2026`);
    expect([refused.status, await refused.json()]).toEqual([
      400,
      expect.objectContaining({
        message: expect.stringMatching(/^since: "03\/04\/2026" is not a time/),
      }),
    ]);
  });
});

describe('health', () => {
  test('reports the process, and readiness reports its parts', async () => {
    let isWell = true;
    const probes = [
      {
        name: 'postgres',
        check: async () => void (await pool.query('select 1')),
      },
      {
        name: 'queue',
        check: async () =>
          isWell ? undefined : Promise.reject(new Error('away')),
      },
    ];
    await using api = await startApi(warehouse, { probes });
    expect((await fetch(`${api.url}/healthz`)).status).toBe(200);
    expect(await json(`${api.url}/readyz`)).toEqual({
      ready: true,
      parts: { postgres: 'ok', queue: 'ok' },
    });
    isWell = false;
    const failed = await waitFor(
      async () => {
        const response = await fetch(`${api.url}/readyz`);
        return response.status === 503 ? response : undefined;
      },
      { what: 'the failing part to show' },
    );
    expect(await failed.json()).toEqual({
      ready: false,
      parts: { postgres: 'ok', queue: 'failed' },
    });
  });

  test('does not wait for a part that hangs', async () => {
    const server = await apiWithoutDatabase({
      probes: [{ name: 'stuck', check: () => new Promise(() => undefined) }],
    });
    const { statusCode } = await server.inject({
      url: '/readyz',
      headers: { host: 'localhost' },
    });
    expect(statusCode).toBe(503);
  });

  test('is answered without a database, and says so', async () => {
    // No server listens at this address.
    const url = 'postgres://nobody@127.0.0.1:1/none';
    await using away = openWarehouse({ url, onIdleError: () => undefined });
    await using api = await startApi(away);
    expect((await fetch(`${api.url}/healthz`)).status).toBe(200);
    for (const path of ['/api/v2/parties', '/mirror/status']) {
      const response = await fetch(`${api.url}${path}`);
      expect(response.status).toBe(503);
      expect(await response.json()).toEqual({
        code: 14,
        message: 'the mirror cannot reach its database; try again',
        details: [],
      });
    }
    expect((await fetch(`${api.url}/metrics`)).status).toBe(200);
  });
});

describe('metrics', () => {
  test('are the documented ones, with labels of few values', async () => {
    const metrics = new MetricsRegistry();
    new Gauge({
      name: 'other_part',
      help: 'of another part',
      registers: [metrics],
    }).set(1);
    await using api = await startApi(warehouse, { metrics });
    await fetch(`${api.url}/api/v2/parties?partyId=${PARTY}`);
    await fetch(`${api.url}/some/${PARTY}`);
    await fetch(`${api.url}/api/v2/parties?partyId=nonsense`);
    const text = await (await fetch(`${api.url}/metrics`)).text();
    expect(text).toContain('other_part 1');
    expect(text).toContain(
      'ledger_mirror_http_requests_total{route="/api/v2/parties",method="GET",status="200"} 1',
    );
    expect(text).toContain(
      'ledger_mirror_http_requests_total{route="/api/v2/parties",method="GET",status="400"} 1',
    );
    expect(text).toContain(
      'ledger_mirror_stream_as_of_seconds{stream="parties"} 1682935200.123',
    );
    expect(text).not.toContain(PARTY);
    const served = new Set(
      [...text.matchAll(/^# TYPE (ledger_mirror_\w+)/gm)].map(
        ([, name]) => name,
      ),
    );
    const documentation = await readFile(
      new URL('../../../docs/metrics.md', import.meta.url),
      'utf8',
    );
    const documented = new Set(
      [...documentation.matchAll(/^\| `(ledger_mirror_\w+)`.*\| api \|/gm)].map(
        ([, name]) => name,
      ),
    );
    expect(served).toEqual(documented);
  });
});

describe('the interface document', () => {
  test('describes every route from its schema', async () => {
    await using api = await startApi(warehouse);
    const { paths } = (await json(`${api.url}/openapi.json`)) as {
      paths: Record<
        string,
        Record<
          string,
          {
            parameters: { name: string; in: string; required: boolean }[];
            responses: object;
          }
        >
      >;
    };
    expect(Object.keys(paths).toSorted()).toEqual([
      '/api/v2/checkpoints',
      '/api/v2/ledgerentry/export',
      '/api/v2/parties',
      '/healthz',
      '/metrics',
      '/mirror/exports',
      '/mirror/exports/{id}',
      '/mirror/exports/{id}/download',
      '/mirror/exports/{id}/events',
      '/mirror/proof/latest',
      '/mirror/proof/{*}',
      '/mirror/runs',
      '/mirror/runs/{id}',
      '/mirror/runs/{id}/events',
      '/mirror/runs/{id}/logs',
      '/mirror/status',
      '/readyz',
    ]);
    expect(
      paths['/api/v2/parties']?.['get']?.parameters.map(({ name }) => name),
    ).toEqual([
      'partyId',
      'pagination.first',
      'pagination.after',
      'pagination.last',
      'pagination.before',
      'pagination.newestFirst',
      'mirror.partial',
    ]);
    expect(paths['/mirror/exports/{id}']?.['delete']?.parameters).toMatchObject(
      [{ name: 'id', in: 'path', required: true }],
    );
    expect(paths['/mirror/exports']?.['post']?.responses).toHaveProperty('202');
  });
});
