/**
 * A mirror as the source of another one: the second never closes a ledger beyond what the
 * first one proves of it, whichever part of the first has come further.
 */
import { expect, test } from 'vitest';
import { enqueueRun } from '../../src/runs/enqueue.ts';
import type { NewRun, Run } from '../../src/runs/store/run-store.ts';
import { ageMirror } from '../support/measure/simulated-nights.ts';
import { coveredRanges } from '../support/mirror-state.ts';
import { type SandboxOptions, startSandbox } from '../support/sandbox.ts';
import { waitFor } from '../support/wait-for.ts';
import { type RealApp, startRealApp } from './real-app.ts';

const DAY_MS = 86_400_000;
const NETWORK: SandboxOptions = {
  parties: 8,
  partiesMax: 8,
  historyMs: 3 * DAY_MS,
  rateLimit: 'none',
};
const NIGHTLY = { kind: 'nightly', subject: 'now' } as const;

async function ended({ app }: RealApp, order: NewRun): Promise<Run> {
  const { runId } = await app.jobs.runs.create(order);
  const created = await app.jobs.runs.get(runId);
  if (created !== undefined) await enqueueRun(created, app.jobs);
  return waitFor(
    async () => {
      const now = await app.jobs.runs.get(runId);
      return now?.state === 'done' ? now : undefined;
    },
    { what: `${order.kind} of ${order.subject} to end` },
  );
}

async function syncLists(mirror: RealApp): Promise<void> {
  for (const subject of ['parties', 'checkpoints']) {
    const { verdict } = await ended(mirror, { kind: 'sync', subject });
    expect(verdict).toBe('complete');
  }
}

/** How far each ledger is proven. */
async function closedTo({ app }: RealApp): Promise<Map<string, number>> {
  const ranges = await coveredRanges(app.warehouse.pool);
  const proven = ranges.filter(({ open }) => !open);
  return new Map(proven.map(({ partyId, to }) => [partyId, to.getTime()]));
}

async function entriesOf({ app }: RealApp): Promise<string[]> {
  const { rows } = await app.warehouse.pool.query<{ entry: string }>(
    `select party_id || ' ' || vega_time || ' ' || quantity as entry
     from mirror.ledger_entries order by 1`,
  );
  return rows.map(({ entry }) => entry);
}

async function expectNoneBeyond(second: RealApp, first: RealApp) {
  const known = await closedTo(first);
  const beyond = [...(await closedTo(second))].filter(
    ([partyId, to]) => to > (known.get(partyId) ?? 0),
  );
  expect(beyond).toEqual([]);
}

test('lists that are newer than the ledgers close no ledger of a second mirror', async () => {
  const sandbox = await startSandbox(NETWORK);
  try {
    await using first = await startRealApp({ SOURCE_URL: sandbox.url });
    expect((await ended(first, NIGHTLY)).verdict).toBe('complete');
    sandbox.advance(DAY_MS);
    await syncLists(first);

    await using second = await startRealApp({ SOURCE_URL: first.url });
    const run = await ended(second, NIGHTLY);

    await expectNoneBeyond(second, first);
    // All of what the first mirror proves is there, as of the night that proved it.
    expect(run.verdict).toBe('complete');
    expect((await closedTo(second)).size).toBeGreaterThan(4);

    // And the next night of both brings the day between.
    await ageMirror(first.app.warehouse.pool, 1);
    expect((await ended(first, NIGHTLY)).verdict).toBe('complete');
    await ageMirror(second.app.warehouse.pool, 1);
    expect((await ended(second, NIGHTLY)).verdict).toBe('complete');
    await expectNoneBeyond(second, first);
    expect(await entriesOf(second)).toEqual(await entriesOf(first));
  } finally {
    await sandbox.stop();
  }
});

test('one ledger that is behind the others is not closed, and a second mirror is not complete', async () => {
  const sandbox = await startSandbox(NETWORK);
  try {
    await using first = await startRealApp({ SOURCE_URL: sandbox.url });
    await ended(first, NIGHTLY);
    sandbox.advance(DAY_MS);
    await ageMirror(first.app.warehouse.pool, 1);
    const [behind] = (await closedTo(first)).keys();
    const [, ...others] = (await closedTo(first)).keys();
    // The night ends its lists and all other ledgers: this one fails.
    sandbox.faults.add(({ route, query }) =>
      route === 'export' && query.get('partyId') === behind
        ? { answer: { status: 500, body: '{}' } }
        : undefined,
    );
    expect((await ended(first, NIGHTLY)).verdict).toBe('incomplete');

    await using second = await startRealApp(
      { SOURCE_URL: first.url },
      { askAgainMs: 1 },
    );
    const run = await ended(second, NIGHTLY);
    await expectNoneBeyond(second, first);
    expect(run.verdict).toBe('incomplete');
    expect(JSON.stringify(run.evidence)).toContain('SOURCE_BEHIND');
    const held = await closedTo(second);
    expect(others.filter((id) => !held.has(id))).toEqual([]);
  } finally {
    await sandbox.stop();
  }
});
