/**
 * The mirror that a command reads: it is there already, and its runs are named by the
 * beginning of their ids.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { App } from '../app/app.ts';
import { openReadOnlyBase, type ReadOnlyBase } from '../app/base.ts';
import type { Config } from '../config/environment.ts';
import { chooseById, splitCutId } from '../ledger/ids.ts';
import { RUN_SILENT_MS } from '../concurrency/lease.ts';
import { UsageError } from '../errors/errors.ts';
import type { Run } from '../runs/store/run-store.ts';
import type { CommandContext } from './context.ts';

/** @throws UsageError if there is no mirror yet: a command that only reads makes none */
export async function openMirror(context: CommandContext): Promise<App> {
  requireMirror(context.config, context.config.databaseUrl, 'postgres');
  return (await import('../app/app.ts')).openApp(context);
}

/** For commands that only look; as `openMirror`. */
export async function openMirrorReader(
  context: CommandContext,
): Promise<ReadOnlyBase> {
  requireMirror(context.config, context.config.databaseUrl, 'postgres');
  return openReadOnlyBase(context);
}

/**
 * @param folder the part of a mirror that DATA_DIR would hold
 * @throws UsageError if `url` is not set and `folder` does not exist
 */
export function requireMirror(
  { dataDir }: Config,
  url: unknown,
  folder: string,
): void {
  if (url !== undefined || existsSync(join(dataDir, folder))) return;
  throw new UsageError([
    `Cannot read the mirror: there is none in ${dataDir}; point DATA_DIR at one, ` +
      `or make one by 'ledger-mirror nightly' or 'ledger-mirror demo'`,
  ]);
}

/**
 * Whether it may be the id of a run, or the beginning of one that is long enough to tell.
 */
export function isRunId(given: string): boolean {
  return /^[0-9a-f][0-9a-f-]{3,35}$/.test(
    splitCutId(given.toLowerCase()).prefix,
  );
}

/** @throws UsageError if no run, or more than one, has an id that begins so */
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
 * Runs that are recorded as running and that no process works on. One without a heartbeat
 * was given back, and waits to be tried again.
 */
export async function listGone(
  runs: Pick<ReadOnlyBase['runs'], 'stale'>,
): Promise<readonly Run[]> {
  const silent = await runs.stale(RUN_SILENT_MS);
  return silent.filter(({ heartbeatAt }) => heartbeatAt !== null);
}

/**
 * @throws UsageError if no listed party, or more than one, has this id or one that
 *   begins so
 */
export function chooseParty(given: string, listed: readonly string[]): string {
  const hint = `give an id as the source lists it; 'ledger-mirror sync parties' reads the list`;
  return chooseById(given, listed, String, {
    where: '--party',
    noun: 'listed party',
    hint,
  });
}
