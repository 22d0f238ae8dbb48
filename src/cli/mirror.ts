/**
 * Opens the existing mirror that a command reads, and finds its runs by a prefix of their
 * ids.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { App } from '../app/app.ts';
import type { ReadOnlyBase } from '../app/base.ts';
import type { Config } from '../config/environment.ts';
import { chooseById, splitCutId } from '../ledger/ids.ts';
import { RUN_SILENT_MS } from '../concurrency/lease.ts';
import { UsageError } from '../errors/errors.ts';
import type { Run } from '../runs/store/run-store.ts';
import type { CommandContext } from './context.ts';

/**
 * Opens an existing mirror.
 * @throws UsageError if there is no mirror yet: a command that only reads does not create
 *   one
 */
export async function openMirror(context: CommandContext): Promise<App> {
  requireMirror(context.config, context.config.databaseUrl, 'postgres');
  return (await import('../app/app.ts')).openApp(context);
}

/** Like `openMirror`, for commands that only read. */
export async function openMirrorReader(
  context: CommandContext,
): Promise<ReadOnlyBase> {
  requireMirror(context.config, context.config.databaseUrl, 'postgres');
  // Loaded on demand, because commands that read only the object store import this file
  // too, and the code for the database is half of what they would load.
  return (await import('../app/base.ts')).openReadOnlyBase(context);
}

/**
 * Requires that part of the mirror exists.
 * @param folder the folder in DATA_DIR that contains this part unless `url` is set
 * @throws UsageError if `url` is not set and `folder` does not exist
 */
export function requireMirror(
  { dataDir, origins }: Config,
  url: unknown,
  folder: string,
): void {
  if (url !== undefined || existsSync(join(dataDir, folder))) return;
  const isElsewhere = !Object.values(origins).includes('.env');
  const where = isElsewhere ? ', and no .env in this folder sets anything' : '';
  throw new UsageError([
    `Cannot read the mirror: there is none in ${dataDir}${where}; go to the folder ` +
      'where the mirror was made, point DATA_DIR at it, ' +
      `or make one by 'ledger-mirror nightly' or 'ledger-mirror demo'`,
  ]);
}

/**
 * Whether `given` may be the id of a run, or a prefix that is long enough to identify
 * one.
 */
export function isRunId(given: string): boolean {
  return /^[0-9a-f][0-9a-f-]{3,35}$/.test(
    splitCutId(given.toLowerCase()).prefix,
  );
}

/**
 * Finds the run with this id or prefix.
 * @throws UsageError if no run matches, or more than one
 */
export async function findRun(
  { runs }: Pick<ReadOnlyBase, 'runs'>,
  where: string,
  given: string,
): Promise<Run> {
  const { prefix, suffix } = splitCutId(given.toLowerCase());
  const found = isRunId(given) ? await runs.withId(prefix, suffix) : [];
  const hint = `'ledger-mirror runs' lists them`;
  return chooseById(given, found, ({ runId }) => runId, {
    where,
    noun: 'run',
    hint,
  });
}

/**
 * Lists runs that are recorded as running although no process is working on them. Runs
 * that have no heartbeat at all are omitted: they were returned to the queue and are
 * waiting for another attempt.
 */
export async function listGone(
  runs: Pick<ReadOnlyBase['runs'], 'stale'>,
): Promise<readonly Run[]> {
  const silent = await runs.stale(RUN_SILENT_MS);
  return silent.filter(({ heartbeatAt }) => heartbeatAt !== null);
}

/**
 * Finds the listed party with this id or prefix.
 * @throws UsageError if no listed party matches, or more than one
 */
export function chooseParty(given: string, listed: readonly string[]): string {
  const hint = `give an id as the source lists it; 'ledger-mirror sync parties' reads the list`;
  return chooseById(given, listed, String, {
    where: '--party',
    noun: 'listed party',
    hint,
  });
}
