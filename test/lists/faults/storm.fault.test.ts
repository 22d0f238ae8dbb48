/**
 * Storms: syncs in processes of their own that are killed with -9 at random, against a
 * source that fails at random and grows, over a Redis that is flushed, set back and away.
 * Whatever happened, the mirror ends with exactly the rows of the truth. A seed that
 * failed is run again with `SEED=… npm run test:faults`.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createHash } from 'node:crypto';
import { Redis } from 'ioredis';
import { afterAll, describe, expect, test } from 'vitest';
import type {
  Misbehaviour,
  SandboxRequest,
} from '../../support/sandbox-faults.ts';
import { startSandbox, type Sandbox } from '../../support/sandbox.ts';
import { openSource } from '../../../src/source/source-client.ts';
import type { ListName } from '../../../src/lists/ports.ts';
import { freshDatabase } from '../../support/database.ts';
import { type Child, runScript } from '../../support/process.ts';
import { startOwnRedis } from '../../support/servers/redis.ts';
import { waitFor } from '../../support/wait-for.ts';
import { localState, sourceConfig } from '../../support/source-config.ts';
import { newRun, openMigrated, SyncWorld } from '../sync-world.ts';
import { recordedRuns } from '../../support/mirror-state.ts';
import { endListLeases } from '../../support/mirror-arrange.ts';

const SEEDS =
  process.env['SEED'] === undefined
    ? ['storm-1', 'storm-2', 'storm-3']
    : [process.env['SEED']];
const ROUNDS_MAX = 60;
/** A worker gets no further than this. */
const PAGES_MAX = 25;
/** About what one takes. */
const PAGE_MS = 30;
const WORKER = join(import.meta.dirname, 'sync-worker.ts');

const database = await freshDatabase();
const warehouse = await openMigrated(database.url);
const world = new SyncWorld(warehouse);
afterAll(() => warehouse[Symbol.asyncDispose]());

/** The key of the worker's resume points in Redis. */
const KEY = 'worker:state:list-sync:';

/** Numbers from 0 to 1 that follow from the seed. */
function dice(seed: string): () => number {
  let state = createHash('sha256').update(seed).digest().readInt32BE();
  return () => {
    state =
      Math.imul(state ^ (state >>> 15), 2_246_822_507) ^
      Math.imul(state ^ (state >>> 13), 3_266_489_909);
    state ^= state >>> 16;
    return (state >>> 0) / 2 ** 32;
  };
}

function pick<Item>(roll: () => number, items: readonly Item[]): Item {
  return items[Math.floor(roll() * items.length)]!;
}

type Rewrite = (answer: {
  [list: string]: { edges: unknown[]; pageInfo: Record<string, unknown> };
}) => void;

function rewritten(change: Rewrite): Misbehaviour {
  return {
    rewrite: (json) => {
      const answer = JSON.parse(json) as Parameters<Rewrite>[0];
      change(answer);
      return JSON.stringify(answer);
    },
  };
}

/** What a request may suffer. None of it changes what is true. */
const SUFFERINGS: readonly Misbehaviour[] = [
  {
    answer: {
      status: 500,
      body: '{"code":13,"message":"Internal error","details":[]}',
    },
  },
  { answer: { status: 502, body: '<html>Bad Gateway</html>' } },
  { answer: { status: 200, body: '<html>maintenance</html>' } },
  { cutAfterBytes: 100 },
  { delayMs: 150 },
  rewritten((answer) =>
    Object.values(answer).forEach(({ pageInfo }) => {
      pageInfo['hasNextPage'] = false;
    }),
  ),
  rewritten((answer) =>
    Object.values(answer).forEach(({ edges, pageInfo }) => {
      edges.length = 0;
      pageInfo['startCursor'] = '';
      pageInfo['endCursor'] = '';
    }),
  ),
];

function trouble(sandbox: Sandbox, roll: () => number): void {
  sandbox.faults.add((request: SandboxRequest) => {
    if (request.route === 'export' || request.query.has('partyId'))
      return undefined;
    sandbox.advance(Math.floor(roll() * 20_000));
    return roll() < 0.12 ? pick(roll, SUFFERINGS) : { delayMs: 5 };
  });
}

async function booked(sandbox: Sandbox, list: ListName): Promise<Set<string>> {
  // The network's own party is listed, too.
  if (list === 'parties')
    return new Set([
      'network',
      ...Array.from(sandbox.truth.parties(), ({ id }) => id),
    ]);
  return new Set(
    Array.from(
      sandbox.truth.checkpoints(),
      ({ atBlock, hash, blockHash }) => `${atBlock}/${hash}/${blockHash}`,
    ),
  );
}

async function expectNothingWrong(
  sandbox: Sandbox,
  list: ListName,
): Promise<void> {
  const held = await world.held(list);
  const served = await booked(sandbox, list);
  expect(held.filter((key) => !served.has(key))).toEqual([]);
}

/**
 * Kills a worker where it has read so many pages, or ended before, and does not wait for
 * its lease.
 */
async function killLater(
  child: Child,
  pages: number,
  afterMs: number,
): Promise<void> {
  await waitFor(
    () =>
      !child.isRunning || (child.stdout.match(/pages$/gm)?.length ?? 0) > pages,
    {
      what: 'the worker to get on',
    },
  );
  // And at any moment of the next page.
  await sleep(afterMs);
  if (child.isRunning) await child.end('SIGKILL');
  await endListLeases(world.pool);
}

describe.each(SEEDS)(
  'a sync amid kills, faults and growth, from seed %s,',
  (seed) => {
    test.each(['parties', 'checkpoints'] as const)(
      'never holds a wrong row of %s and ends exactly',
      async (list) => {
        await world.reset();
        const roll = dice(`${seed}/${list}`);
        await using redis = await startOwnRedis();
        await using sandbox = await startSandbox({
          seed,
          parties: 700,
          historyMs: 86_400_000,
          checkpointIntervalMs: 120_000,
          rateLimit: 'none',
        });
        trouble(sandbox, roll);
        const client = new Redis(redis.url, {
          maxRetriesPerRequest: 1,
          retryStrategy: () => 50,
          lazyConnect: true,
        });
        client.on('error', () => undefined);
        let older = new Map<string, string>();
        for (let round = 0; round < ROUNDS_MAX; round += 1) {
          const runId = await newRun(world.pool, list);
          const pageSize = 5 + Math.floor(roll() * 20);
          const child = runScript(WORKER, [
            sandbox.url,
            database.url,
            redis.url,
            list,
            runId,
            `${pageSize}`,
          ]);
          await killLater(
            child,
            Math.floor(roll() * PAGES_MAX),
            Math.floor(roll() * PAGE_MS),
          );
          await expectNothingWrong(sandbox, list);
          const happens = pick(roll, [
            'flush',
            'remember',
            'set back',
            'restart',
            'nothing',
          ] as const);
          if (happens === 'flush')
            await client.flushall().catch(() => undefined);
          if (happens === 'remember')
            older = new Map([
              [
                KEY + list,
                (await client.get(KEY + list).catch(() => null)) ?? '{}',
              ],
            ]);
          if (happens === 'set back')
            for (const [key, value] of older)
              await client.set(key, value).catch(() => undefined);
          if (happens === 'restart') {
            await redis.kill();
            await redis.start();
          }
          const runs = await recordedRuns(world.pool);
          if (runs.filter(({ verdict }) => verdict === 'complete').length > 1)
            break;
        }
        client.disconnect();
        // Calm again: one audit, and the mirror is the source.
        sandbox.faults.clear();
        await using source = openSource(
          sourceConfig(sandbox.url),
          localState(),
        );
        await world.sync(source.lists, { list, pageSize: 50 });
        const { verdict, evidence } = await world.sync(source.lists, {
          list,
          isAudit: true,
          pageSize: 50,
        });
        expect(evidence).toMatchObject({
          missing: [],
          doubts: [],
          audit: { missed: '0', gone: '0' },
        });
        expect(verdict).toBe('complete');
        const held = new Set(await world.held(list));
        expect(held).toEqual(await booked(sandbox, list));
      },
    );
  },
);
