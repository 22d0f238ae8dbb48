/**
 * The frame around a run: what it says while it goes on, who took it over, and how it
 * waits for a service.
 */
import { describe, expect, test } from 'vitest';
import { RetryableError, UnreachableError } from '../../src/errors/errors.ts';
import type { Log } from '../../src/logging/log.ts';
import type { Run } from '../../src/runs/store/run-store.ts';
import type { BeforeFinish } from '../../src/runs/job.ts';
import { workRun, type WorkRunDeps } from '../../src/runs/work-run.ts';
import { recordingLog } from '../state/recording-log.ts';
import { freshDatabase } from '../support/database.ts';
import { waitFor } from '../support/wait-for.ts';
import { COMPLETE, openJobWorld } from './stages-double.ts';
import { silenceRuns, startRunBefore } from '../support/mirror-arrange.ts';

const database = await freshDatabase({ isMigrated: true });
const world = await openJobWorld(database.url, 'work-run', {});
const { runs, progress } = world.deps;
const context = { signal: new AbortController().signal, attempt: 1, dueMs: 0 };

function recording(changes: Partial<WorkRunDeps> = {}): {
  deps: WorkRunDeps;
  lines: ReturnType<typeof recordingLog>['lines'];
} {
  const log = recordingLog();
  const deaf = {
    ...world.deps.log,
    error: log.warn,
    debug: () => undefined,
    ...log,
  } as unknown as Log;
  return { deps: { ...world.deps, log: deaf, ...changes }, lines: log.lines };
}

async function fresh(kind: Run['kind'] = 'load'): Promise<string> {
  return (
    await runs.create({
      kind,
      subject: 'test',
      params: { test: crypto.randomUUID() },
    })
  ).runId;
}

describe('a run', () => {
  test.each(['nightly', 'load', 'verify', 'sync'] as const)(
    'of kind %s says every minute how far it is',
    async (kind) => {
      const { deps, lines } = recording({ tellEveryMs: 20 });
      const runId = await fresh(kind);
      await workRun(runId, deps, context, async () => {
        progress.report(runId, [
          {
            label: 'load',
            done: '7',
            total: '9',
            unit: 'rows',
            note: '2 segments',
          },
        ]);
        await waitFor(
          () =>
            lines.filter(({ message }) => message === 'Run is still working')
              .length >= 2,
          {
            what: 'two lines',
          },
        );
        return COMPLETE;
      });
      const told = lines.findLast(
        ({ message }) => message === 'Run is still working',
      );
      expect(told?.fields).toMatchObject({
        runId,
        kind,
        progress: ['load: 7 of 9 rows, 2 segments'],
      });
      expect(told?.fields['tookMs']).toEqual(expect.any(Number));
    },
  );

  test('is taken over from a process that left it, and the log says so with its age', async () => {
    const { deps, lines } = recording();
    const runId = await fresh();
    await runs.start(runId);
    await startRunBefore(database.pool, runId, 120);
    await silenceRuns(database.pool, 60, runId);
    await workRun(runId, deps, context, async () => COMPLETE);
    const told = lines.find(
      ({ message }) => message === 'The run is taken over, or tried again',
    );
    expect(told?.fields).toMatchObject({ runId, kind: 'load', attempts: 2 });
    expect(Number(told?.fields['ageMs'])).toBeGreaterThanOrEqual(120_000);
  });

  test('says until when it waits where a service asks to be left alone', async () => {
    const { deps, lines } = recording();
    const busy = new RetryableError('Cannot list parties', {
      code: 'SOURCE_LIMITED',
      retryAfterMs: 86_400_000,
    });
    const tried = workRun(
      await fresh(),
      deps,
      { ...context, attempt: 1 },
      async () => {
        throw busy;
      },
    );
    await expect(tried).rejects.toBe(busy);
    const told = lines.find(({ message }) => message === 'Run is tried again');
    expect(Date.parse(String(told?.fields['notBefore']))).toBeGreaterThan(
      Date.now() + 80_000_000,
    );
  });

  test('is given back and tried again while a service is away, however often it was away before', async () => {
    const { deps, lines } = recording();
    const runId = await fresh('nightly');
    const away = new UnreachableError('Cannot read: no connection', {
      code: 'DATABASE_UNREACHABLE',
    });
    for (let attempt = 1; attempt <= 20; attempt += 1) {
      const tried = workRun(runId, deps, { ...context, attempt }, async () => {
        throw away;
      });
      await expect(tried).rejects.toBe(away);
      expect(await runs.get(runId)).toMatchObject({
        state: 'running',
        heartbeatAt: null,
        verdict: null,
      });
    }
    expect(
      lines.filter(({ message }) => message === 'Run is tried again'),
    ).toHaveLength(20);
    await workRun(runId, deps, context, async () => COMPLETE);
    expect(await runs.get(runId)).toMatchObject({
      state: 'done',
      verdict: 'complete',
    });
  });

  test('reports its failure once more before it ends, which cannot keep it from ending', async () => {
    const spoken: BeforeFinish = async (_run, outcome) => ({
      ...outcome,
      evidence: { ...outcome.evidence, report: 'runs/x.json' },
    });
    const broken: BeforeFinish = async () => {
      throw new UnreachableError('Cannot publish: no connection', {
        code: 'OBJECT_STORE_UNREACHABLE',
      });
    };
    const { deps } = recording();
    const ended: unknown[] = [];
    for (const words of [spoken, broken]) {
      const runId = await fresh('nightly');
      await workRun(
        runId,
        deps,
        { ...context, attempt: 6 },
        async () => {
          throw new RetryableError('Cannot yet', { code: 'TEST' });
        },
        words,
      );
      ended.push(await runs.get(runId));
    }
    expect(ended).toMatchObject([
      {
        verdict: 'incomplete',
        evidence: { error: { code: 'TEST' }, report: 'runs/x.json' },
      },
      {
        verdict: 'incomplete',
        evidence: { reportProblem: { code: 'OBJECT_STORE_UNREACHABLE' } },
      },
    ]);
  });
});
