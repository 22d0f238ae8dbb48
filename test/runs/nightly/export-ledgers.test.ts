/** Where what became of ledgers cannot be written down: that is nobody's ledger's fault. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { PermanentError } from '../../../src/core/errors.ts';
import { createLog } from '../../../src/core/log.ts';
import type { JobDeps } from '../../../src/runs/job.ts';
import { exportLedgers } from '../../../src/runs/nightly/export-ledgers.ts';
import type { SettledLedger } from '../../../src/runs/store/nightly/nightly-store.ts';

const CLOCK = { seen: '2033-05-18T03:33:20Z', closedTo: '2033-05-18T03:31:20Z', from: 'source' };

it.each([
  ['while a ledger takes long', 3, 2, 2_500],
  ['as the job ends', 3, 3, 0],
])('stops where a write fails %s', async (_when, parties, asked, secondMs) => {
  const ids = Array.from({ length: parties }, (_, index) => `party-${index}`);
  const exported: string[] = [];
  const written: SettledLedger[] = [];
  const run = {
    runId: 'run',
    state: 'running',
    cancelRequested: false,
    sourceUrl: null,
    params: { clock: CLOCK },
  };
  const exportOne: JobDeps['stages']['export'] = async ({ partyId }) => {
    if (exported.push(partyId) === 2) await sleep(secondMs);
    return { verdict: 'complete', evidence: {} };
  };
  const deps = {
    runs: { get: async () => run, keep: async () => undefined },
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
        giveBack: async () => undefined,
        [Symbol.asyncDispose]: async () => undefined,
      }),
      export: exportOne,
    },
    costs: { charge: (_runId: string, work: () => unknown) => work(), flush: async () => undefined },
    progress: { report: () => undefined },
    log: createLog('silent'),
  } as unknown as JobDeps;
  const context = { signal: new AbortController().signal, attempt: 1, dueMs: 0 };
  await expect(exportLedgers('run', ids, deps, context)).rejects.toThrow('Cannot settle');
  expect(exported).toEqual(ids.slice(0, asked));
  expect(written.filter(({ state }) => state === 'failed')).toEqual([]);
});
