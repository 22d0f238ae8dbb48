/**
 * Reads runs and their log lines for clients, which get an error instead of waiting for a
 * slow database.
 */
import { readWithin } from '../../postgres/read-within.ts';
import type { Database } from '../../postgres/database.ts';
import type { RunDocument } from '../run-schema.ts';
import { readLines, type RunLinePage } from './run-logs.ts';
import { type RunFilter, RunStore } from './run-store.ts';

export interface RunReader {
  /** Lists runs, newest first. */
  runs(filter: RunFilter): Promise<readonly RunDocument[]>;
  /** @returns undefined if there is no such run */
  run(runId: string): Promise<RunDocument | undefined>;
  /**
   * Reads a page of a run's log lines, oldest first.
   * @param after `next` of the previous page
   */
  logs(runId: string, rowsMax: number, after: string): Promise<RunLinePage>;
}

/** @param limitMs how long one read may take; the default is that of `readWithin` */
export function openRunReader(db: Database, limitMs?: number): RunReader {
  const runs = new RunStore(db);

  return {
    runs: (filter) => readWithin('list runs', () => runs.list(filter), limitMs),
    run: (runId) => readWithin('read a run', () => runs.get(runId), limitMs),
    logs: (runId, rowsMax, after) =>
      readWithin(
        'read the log of a run',
        () => readLines(db, runId, rowsMax, after),
        limitMs,
      ),
  };
}
