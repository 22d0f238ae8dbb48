/**
 * A short form of `npm run bench -- year`: nights of three months, and what is left of
 * them.
 */
import { afterAll, expect, test } from 'vitest';
import {
  closedSegments,
  countRows,
  passNight,
  startBusyNetwork,
} from '../support/measure/simulated-nights.ts';
import { startRealApp } from './real-app.ts';
import { loadedRowsByParty } from '../support/mirror-state.ts';

const PARTIES = 3;
const DAYS_A_NIGHT = 6;
const NIGHTS = 12;
/** May and June; July goes on. */
const MONTHS_OVER = 2;
const NIGHT_MS = 60_000;

const sandbox = await startBusyNetwork(PARTIES);
afterAll(() => sandbox.stop());

test(
  'keeps one closed segment for each past month, and lake and table hold what the source has',
  async () => {
    await using real = await startRealApp({
      SOURCE_URL: sandbox.url,
      HISTORY_RETENTION: '30d',
    });
    const { app } = real;
    let mergedRows = 0;
    for (let night = 1; night <= NIGHTS; night += 1) {
      const run = await passNight(app, sandbox, DAYS_A_NIGHT);
      expect([run.verdict, run.evidence]).toMatchObject([
        'complete',
        { merged: { failed: 0, left: 0 } },
      ]);
      mergedRows += Number((run.evidence['merged'] as { rows: string }).rows);
    }
    expect(mergedRows).toBeGreaterThan(0);
    const kept = await closedSegments(app);
    expect(kept.length).toBeGreaterThan(1);
    // Those of the month that goes on are merged when it is over.
    for (const { segments } of kept)
      expect(segments).toBeLessThanOrEqual(MONTHS_OVER + 30 / DAYS_A_NIGHT);
    const { verdict } = await app.jobs.stages.verify(
      { runId: crypto.randomUUID(), deep: true, scope: 'whole' },
      { signal: new AbortController().signal, onProgress: () => undefined },
    );
    expect(verdict).toBe('complete');
    expect((await loadedRowsByParty(app.warehouse.pool)).size).toBe(
      kept.length,
    );
    const counts = await countRows(app);
    // A night is a run and its parts; older ones than 30 days are forgotten.
    expect(counts.get('mirror.runs')).toBeLessThan(5 * (30 / DAYS_A_NIGHT + 2));
    // What was superseded is kept for a week, and as long once more.
    expect(counts.get('mirror.segments')).toBeLessThan(PARTIES * 40);
  },
  NIGHTS * NIGHT_MS,
);
