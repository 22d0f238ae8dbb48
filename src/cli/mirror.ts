/** The mirror that a command reads: it is there already, and its runs are named by the beginning of their ids. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { App } from '../app/app.ts';
import { openReader, type Reader } from '../app/reader.ts';
import type { Config } from '../config/environment.ts';
import { UsageError } from '../core/errors.ts';
import { splitCutId } from '../core/ids.ts';
import type { Run } from '../runs/store/run-store.ts';
import type { CommandContext } from './context.ts';

/** @throws UsageError where no mirror was made there yet: who only reads makes none */
export async function openMirror(context: CommandContext): Promise<App> {
  requireMirror(context.config, context.config.databaseUrl, 'postgres');
  return (await import('../app/app.ts')).openApp(context);
}

/** For commands that only look; as `openMirror`. */
export async function openMirrorReader(context: CommandContext): Promise<Reader> {
  requireMirror(context.config, context.config.databaseUrl, 'postgres');
  return openReader(context);
}

/** @throws UsageError where neither `url` is set nor `folder` is there: a mirror's part in DATA_DIR */
export function requireMirror({ dataDir }: Config, url: URL | undefined, folder: string): void {
  if (url !== undefined || existsSync(join(dataDir, folder))) return;
  throw new UsageError([
    `Cannot read the mirror: there is none in ${dataDir}; point DATA_DIR at one, or make one by 'ledger-mirror nightly' or 'ledger-mirror demo'`,
  ]);
}

/** @throws UsageError where no run, or more than one, has an id that begins so */
export async function findRun({ runs }: Pick<Reader, 'runs'>, command: string, given: string): Promise<Run> {
  const { prefix, suffix } = splitCutId(given.toLowerCase());
  const shown = JSON.stringify(given.slice(0, 80));
  const found = /^[0-9a-f][0-9a-f-]{3,35}$/.test(prefix) ? await runs.withId(prefix, suffix) : [];
  const [run, another] = found;
  if (run !== undefined && another === undefined) return run;
  const problem = run === undefined ? 'there is no run' : 'more than one run begins with';
  throw new UsageError([`${command}: ${problem} ${shown}; 'ledger-mirror runs' lists them`]);
}
