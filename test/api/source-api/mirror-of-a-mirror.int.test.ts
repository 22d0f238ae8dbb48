/**
 * A mirror is itself a source: a mirror of it holds the same lists and, by digest, the
 * same ledgers.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { type App, openApp } from '../../../src/app/app.ts';
import { startApi } from '../../../src/app/serving/serve.ts';
import { readConfig } from '../../../src/config/environment.ts';
import { createLog } from '../../../src/logging/log.ts';
import { startSandbox } from '../../support/sandbox.ts';
import { openFreshDatabase } from '../../support/database.ts';
import {
  currentSegments,
  heldCheckpoints,
  knownParties,
  listedParties,
} from '../../support/mirror-state.ts';

const LISTS = ['parties', 'checkpoints'] as const;
const signal = new AbortController().signal;
const opened = new AsyncDisposableStack();
afterAll(() => opened.disposeAsync());

/** A mirror that has walked and exported everything of `sourceUrl`, and serves test. */
async function mirrorOf(
  sourceUrl: string,
): Promise<{ app: App; url: string; verdicts: readonly string[] }> {
  const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-twice-'));
  opened.defer(() => rm(folder, { recursive: true, force: true }));
  const database = opened.use(await openFreshDatabase());
  const env = {
    SOURCE_URL: sourceUrl,
    SOURCE_RATE: '10000',
    SOURCE_PAGE_SIZE: '7',
    DATABASE_URL: database.url,
    DATA_DIR: folder,
    API_PORT: '0',
  };
  const config = readConfig({ env, cwd: folder });
  const app = opened.use(
    await openApp({ config, log: createLog('silent'), signal }),
  );
  const { stages, runs } = app.jobs;
  const call = { signal, onProgress: () => undefined };
  const verdicts: string[] = [];
  for (const list of LISTS) {
    const { runId } = await runs.create({ kind: 'sync', subject: list });
    verdicts.push(
      (
        await stages.sync(
          {
            runId,
            list,
            full: false,
            acceptNewNetwork: false,
            acceptShrunk: false,
          },
          call,
        )
      ).verdict,
    );
  }
  const clock = await stages.clock({ signal });
  for (const partyId of await listedParties(app.warehouse.pool)) {
    const { runId } = await runs.create({ kind: 'export', subject: partyId });
    verdicts.push(
      (await stages.export({ runId, partyId, clock }, call)).verdict,
    );
  }
  const api = opened.use(await startApi(app));
  return { app, url: api.url, verdicts };
}

async function listsOf(app: App): Promise<unknown> {
  const { pool } = app.warehouse;
  const parties = await listedParties(pool);
  const known = await knownParties(pool);
  const checkpoints = await heldCheckpoints(pool);
  return [parties, known, checkpoints];
}

/** Of each party the sum of its segments' digests, modulo 2^256, and their rows. */
async function ledgersOf(
  app: App,
): Promise<ReadonlyMap<string, { entries: number; digest: string }>> {
  const ledgers = new Map<string, { entries: number; digest: string }>();
  for (const row of await currentSegments(app.warehouse.pool)) {
    const before = ledgers.get(row.partyId) ?? { entries: 0, digest: '0' };
    const sum = BigInt.asUintN(
      256,
      BigInt(`0x${before.digest}`) + BigInt(`0x${row.digest}`),
    );
    ledgers.set(row.partyId, {
      entries: before.entries + row.rows,
      digest: sum.toString(16).padStart(64, '0'),
    });
  }
  return ledgers;
}

test('a mirror of a mirror is equal to the network, by order and by digest', async () => {
  const sandbox = await startSandbox({
    parties: 30,
    historyMs: 6 * 3_600_000,
    rateLimit: 'none',
    whaleEntries: 500,
  });
  opened.defer(() => sandbox.stop());
  const first = await mirrorOf(sandbox.url);
  const second = await mirrorOf(first.url);
  expect(new Set([...first.verdicts, ...second.verdicts])).toEqual(
    new Set(['complete']),
  );
  expect(await listsOf(second.app)).toEqual(await listsOf(first.app));

  const told = new Map(
    [...sandbox.truth.parties()]
      .map(({ id }) => [id, sandbox.truth.party(id)] as const)
      .filter(([, { entries }]) => entries > 0)
      .map(([id, { entries, digest }]) => [id, { entries, digest }] as const),
  );
  expect(told.size).toBeGreaterThan(2);
  expect(await ledgersOf(first.app)).toEqual(told);
  expect(await ledgersOf(second.app)).toEqual(told);
});
