/**
 * Lists by real jobs on both queue backends: of the plain server in several dialects, and
 * of the sandbox.
 */
import { describe, expect, test } from 'vitest';
import { enqueueRun } from '../../src/runs/enqueue.ts';
import type { Run } from '../../src/runs/store/run-store.ts';
import { type Sandbox, startSandbox } from '../support/sandbox.ts';
import { HONEST_DIALECTS } from '../lists/plain-source/honest-dialects.ts';
import { startPlainSource } from '../lists/plain-source/start.ts';
import { checkpointKey } from '../lists/plain-source/rows.ts';
import { freshRedis } from '../support/servers/redis.ts';
import { waitFor } from '../support/wait-for.ts';
import { type Env, type RealApp, startRealApp } from './real-app.ts';
import {
  presentCheckpoints,
  presentParties,
  recordedSourceUrl,
} from '../support/mirror-state.ts';

const redis = await freshRedis();
const BACKENDS = [
  ['Postgres', {}],
  ['Redis', { REDIS_URL: redis.url }],
] as const;
const FULL = HONEST_DIALECTS.filter(({ verdicts }) =>
  Object.values(verdicts)
    .flat()
    .every((one) => one === 'complete'),
);
/** Every twentieth: cursors, ties, clamps, envelopes and ids of each kind. */
const SOME = FULL.filter((_, at) => at % 20 === 0).filter(
  // Above the last height there is none to grow to.
  ({ name, make }) =>
    make().dialect.growth === undefined &&
    !name.startsWith('heights-to-the-last'),
);

async function ended(
  { app }: RealApp,
  asked: Pick<Run, 'kind' | 'subject'>,
): Promise<Run> {
  const run = await app.jobs.runs.create({
    ...asked,
    params: { test: crypto.randomUUID() },
  });
  await enqueueRun(run, app.jobs);
  return waitFor(
    async () => {
      const now = await app.jobs.runs.get(run.runId);
      return now?.state === 'done' || now?.state === 'cancelled'
        ? now
        : undefined;
    },
    { what: `${asked.kind} of ${asked.subject} to end` },
  );
}

/** A small network, and a mirror of it that knows nothing yet. */
interface MirroredNetwork extends AsyncDisposable {
  readonly sandbox: Sandbox;
  readonly mirror: RealApp;
}

async function openNetwork(env: Env, seed: string): Promise<MirroredNetwork> {
  await using stack = new AsyncDisposableStack();
  const options = { parties: 6, entriesMean: 10, rateLimit: 'none' } as const;
  const sandbox = stack.use(await startSandbox({ ...options, seed }));
  const mirror = stack.use(
    await startRealApp({ ...env, SOURCE_URL: sandbox.url }),
  );
  const owned = stack.move();
  return {
    sandbox,
    mirror,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function held({
  app,
}: RealApp): Promise<{ parties: string[]; checkpoints: string[] }> {
  const { pool } = app.warehouse;
  return {
    parties: await presentParties(pool),
    checkpoints: await presentCheckpoints(pool),
  };
}

describe.each(BACKENDS)('with queues in %s', (_, env) => {
  test.each(SOME)(
    'an honest source is held exactly, and held again after it has grown: $name',
    async ({ make, pageSize }) => {
      const honest = make();
      const plain = await startPlainSource(honest);
      try {
        await using mirror = await startRealApp({
          ...env,
          SOURCE_URL: plain.url,
          SOURCE_PAGE_SIZE: `${pageSize}`,
        });
        const hex = (id: string): string =>
          /^[0-9a-f]{64}$/i.test(id) ? id.toLowerCase() : id;
        for (const round of [1, 2]) {
          if (round === 2) plain.append(honest.maker.make(5, 5));
          for (const subject of ['parties', 'checkpoints']) {
            const { verdict, evidence } = await ended(mirror, {
              kind: 'sync',
              subject,
            });
            expect([
              round,
              subject,
              verdict === 'complete' ? [] : evidence,
            ]).toEqual([round, subject, []]);
          }
          expect(await held(mirror)).toEqual({
            parties: plain.truth.parties.map(hex).toSorted(),
            checkpoints: plain.truth.checkpoints.map(checkpointKey).toSorted(),
          });
        }
      } finally {
        await plain.close();
      }
    },
  );

  test('a complete sync records of which source the mirror is, and is counted', async () => {
    await using sandbox = await startSandbox({ parties: 6, entriesMean: 10 });
    await using mirror = await startRealApp({
      ...env,
      SOURCE_URL: sandbox.url,
    });
    const { pool } = mirror.app.warehouse;
    expect(await recordedSourceUrl(pool)).toBe(null);
    await ended(mirror, { kind: 'sync', subject: 'parties' });
    expect(await recordedSourceUrl(pool)).toBe(`${sandbox.url}/`);
    const counted =
      'ledger_mirror_runs_total{kind="sync",verdict="complete"} 1';
    await waitFor(
      async () =>
        (await (await fetch(`${mirror.url}/metrics`)).text()).includes(
          counted,
        ) || undefined,
      {
        what: 'the run to be counted',
      },
    );
  });

  test('exports go on where checkpoints are not served, fail or are gone, and the nightly run says why it is incomplete', async () => {
    await using network = await openNetwork(env, 'no checkpoints');
    const { sandbox, mirror } = network;
    const nights: unknown[] = [];
    const night = async (): Promise<void> => {
      const { verdict, evidence } = await ended(mirror, {
        kind: 'nightly',
        subject: 'now',
      });
      const { lists, covers, exports } = evidence as Record<
        string,
        Record<string, unknown>
      >;
      const checkpoints = lists?.['checkpoints'] as {
        verdict: string;
        error?: { message: string };
        missing?: object[];
      };
      nights.push({
        verdict,
        checkpoints,
        // Every listed ledger was asked and is covered.
        isWhole:
          Number(covers?.['covered']) >= 6 &&
          covers?.['covered'] === covers?.['wanted'] &&
          exports?.['unasked'] === 0,
      });
      sandbox.faults.clear();
      sandbox.advance(600_000);
    };
    const EMPTY =
      '{"checkpoints":{"edges":[],"pageInfo":{"hasNextPage":false}}}';
    const answers = [
      { status: 404, body: '{"code":5,"message":"Not Found","details":[]}' },
      {
        status: 500,
        body: '{"code":13,"message":"Internal error","details":[]}',
      },
    ];
    for (const answer of answers) {
      sandbox.faults.add(({ route }) =>
        route === 'checkpoints' ? { answer } : undefined,
      );
      await night();
    }
    await night();
    sandbox.faults.add(({ route }) =>
      route === 'checkpoints'
        ? { answer: { status: 200, body: EMPTY } }
        : undefined,
    );
    await night();
    expect(nights).toMatchObject([
      {
        verdict: 'incomplete',
        checkpoints: { verdict: 'failed', error: { code: 'SOURCE_ABSENT' } },
        isWhole: true,
      },
      {
        verdict: 'incomplete',
        checkpoints: { error: { code: 'SOURCE_STATUS' } },
        isWhole: true,
      },
      {
        verdict: 'complete',
        checkpoints: { verdict: 'complete' },
        isWhole: true,
      },
      {
        verdict: 'suspicious',
        checkpoints: { verdict: 'suspicious' },
        isWhole: true,
      },
    ]);
  });

  test('exports go on where parties are not served, and the clock is that of checkpoints', async () => {
    await using network = await openNetwork(env, 'no parties');
    const { sandbox, mirror } = network;
    await ended(mirror, { kind: 'nightly', subject: 'now' });
    sandbox.advance(600_000);
    const answer = {
      status: 404,
      body: '{"code":5,"message":"Not Found","details":[]}',
    };
    sandbox.faults.add(({ route }) =>
      route === 'parties' ? { answer } : undefined,
    );
    const asked = sandbox.requests.of('export');
    const night = await ended(mirror, { kind: 'nightly', subject: 'now' });
    expect(night.verdict).toBe('incomplete');
    expect(night.evidence['exports']).toMatchObject({ verdict: 'complete' });
    expect(sandbox.requests.of('export')).toBeGreaterThan(asked);
  });

  test('no ledger is asked for while a list is of another network, and the next night at the right address is complete', async () => {
    await using network = await openNetwork(env, 'another network');
    const { sandbox, mirror } = network;
    await ended(mirror, { kind: 'nightly', subject: 'now' });
    const foreign = {
      node: { id: 'ee'.repeat(32) },
      cursor: 'foreign',
    };
    const body = JSON.stringify({
      parties: { edges: [foreign], pageInfo: { hasNextPage: false } },
    });
    sandbox.faults.add(({ route }) =>
      route === 'parties' ? { answer: { status: 200, body } } : undefined,
    );
    const asked = sandbox.requests.of('export');
    for (let count = 0; count < 2; count += 1) {
      const night = await ended(mirror, { kind: 'nightly', subject: 'now' });
      expect(night.verdict).toBe('suspicious');
      expect(night.evidence['exports']).toMatchObject({
        code: 'OTHER_NETWORK',
      });
    }
    expect(sandbox.requests.of('export')).toBe(asked);
    const order = await ended(mirror, {
      kind: 'export',
      subject: (await presentParties(mirror.app.warehouse.pool))[0] ?? '',
    });
    expect(order.verdict).toBe('failed');

    sandbox.faults.clear();
    sandbox.advance(600_000);
    const right = await ended(mirror, { kind: 'nightly', subject: 'now' });
    expect(right.evidence['exports']).toMatchObject({ verdict: 'complete' });
  });

  test('at a new address no ledger is asked for before a held party is shown, by an order or a night', async () => {
    await using network = await openNetwork(env, 'a new address');
    const { sandbox, mirror } = network;
    await ended(mirror, { kind: 'nightly', subject: 'now' });
    const { pool } = mirror.app.warehouse;
    const [subject = ''] = await presentParties(pool);
    // As if SOURCE_URL had been set to where this network is served since the last claim.
    await pool.query(
      `update mirror.identity set source_url = 'http://former.example/'`,
    );
    const none = {
      status: 404,
      body: '{"code":5,"message":"Not Found","details":[]}',
    };
    sandbox.faults.add(({ route }) =>
      route === 'export' ? undefined : { answer: none },
    );
    const asked = sandbox.requests.of('export');
    const order = await ended(mirror, { kind: 'export', subject });
    expect(order.verdict).toBe('failed');
    expect(JSON.stringify(order.evidence)).toContain('OTHER_NETWORK');
    const night = await ended(mirror, { kind: 'nightly', subject: 'now' });
    expect(night.verdict).not.toBe('complete');
    expect(sandbox.requests.of('export')).toBe(asked);

    sandbox.faults.clear();
    const shown = await ended(mirror, { kind: 'export', subject });
    expect(shown.verdict).toBe('complete');
    expect(sandbox.requests.of('export')).toBeGreaterThan(asked);
  });
});
