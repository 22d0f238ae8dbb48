/**
 * Where what became of ledgers cannot be written down: that is nobody's ledger's fault.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { PermanentError } from '../../../src/errors/errors.ts';
import { createLog } from '../../../src/logging/log.ts';
import type { JobDeps } from '../../../src/runs/job.ts';
import { exportLedgers } from '../../../src/runs/nightly/export-ledgers.ts';
import type { SettledLedger } from '../../../src/runs/store/nightly/nightly-store.ts';

const CLOCK = {
  seen: '2033-05-18T03:33:20Z',
  closedTo: '2033-05-18T03:31:20Z',
  from: 'source',
};
const RUN = {
  runId: 'run',
  state: 'running',
  cancelRequested: false,
  sourceUrl: null,
  params: { clock: CLOCK },
  startedAt: '2033-05-18T03:30:00Z',
  queuedAt: '2033-05-18T03:30:00Z',
};

const NO_AUDITS = {
  nightlyAuditShare: 0,
  nightlyAuditWithin: 30 * 86_400_000,
  nightlyWindow: 3_600_000,
  schedule: { pattern: '0 2 * * *', tz: 'UTC' },
};

test.each([
  ['while a ledger takes long', 3, 2, 2_500],
  ['as the job ends', 3, 3, 0],
])('stops where a write fails %s', async (_when, parties, asked, secondMs) => {
  const ids = Array.from({ length: parties }, (_, index) => `party-${index}`);
  const exported: string[] = [];
  const written: SettledLedger[] = [];
  const exportOne: JobDeps['stages']['export'] = async ({ partyId }) => {
    if (exported.push(partyId) === 2) await sleep(secondMs);
    return { verdict: 'complete', evidence: {} };
  };
  const deps = {
    runs: { get: async () => RUN, keep: async () => undefined },
    nightly: {
      unsettled: async () => ids,
      settle: async (_runId: string, settled: readonly SettledLedger[]) => {
        written.push(...settled);
        throw new PermanentError('Cannot settle', { code: 'TEST' });
      },
    },
    stages: {
      leaseLedgers: async () => ({
        export: exportOne,
        write: async () => [],
        releaseUnstarted: async () => undefined,
        [Symbol.asyncDispose]: async () => undefined,
      }),
      export: exportOne,
    },
    costs: {
      charge: (_runId: string, work: () => unknown) => work(),
      flush: async () => undefined,
    },
    progress: { report: () => undefined },
    ...NO_AUDITS,
    log: createLog('silent'),
  } as unknown as JobDeps;
  const context = {
    signal: new AbortController().signal,
    attempt: 1,
    dueMs: 0,
  };
  await expect(
    exportLedgers({ runId: 'run', partyIds: ids }, deps, context),
  ).rejects.toThrow('Cannot settle');
  expect(exported).toEqual(ids.slice(0, asked));
  expect(written.filter(({ state }) => state === 'failed')).toEqual([]);
});

test('tries ledgers again that others had taken over, and fails them at its last try', async () => {
  const ids = ['party-0', 'party-1'];
  const written: SettledLedger[] = [];
  const deps = {
    runs: { get: async () => RUN, keep: async () => undefined },
    nightly: {
      unsettled: async () => ids,
      settle: async (_runId: string, settled: readonly SettledLedger[]) =>
        void written.push(...settled),
    },
    stages: {
      leaseLedgers: async () => ({
        export: async () => ({ verdict: 'complete', evidence: {} }),
        write: async () => ['party-1'],
        releaseUnstarted: async () => undefined,
        [Symbol.asyncDispose]: async () => undefined,
      }),
    },
    costs: {
      charge: (_runId: string, work: () => unknown) => work(),
      flush: async () => undefined,
    },
    progress: { report: () => undefined },
    ...NO_AUDITS,
    log: createLog('silent'),
  } as unknown as JobDeps;
  const tryIt = async (attempt: number) =>
    exportLedgers({ runId: 'run', partyIds: ids }, deps, {
      signal: new AbortController().signal,
      attempt,
      dueMs: 0,
    });
  const failed = () =>
    written
      .filter(({ state }) => state === 'failed')
      .map(({ partyId }) => partyId);
  await expect(tryIt(1)).rejects.toMatchObject({ code: 'LEASE_LOST' });
  expect(failed()).toEqual([]);
  await tryIt(4);
  expect(failed()).toEqual(['party-1']);
});
