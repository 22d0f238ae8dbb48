/**
 * Shared by every benchmark: a temporary folder and server, numbers from the command
 * line, and the rows of its table.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLog } from '../../src/logging/log.ts';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { openWarehouse, type Warehouse } from '../../src/postgres/database.ts';
import { migrate } from '../../src/postgres/migrate.ts';

export interface Scratch {
  readonly folder: string;
  /** The address of a Postgres whose data are below `data/` in the folder. */
  readonly connectionString: string;
}

/** Creates a folder that is removed with the stack. */
export async function openFolder(stack: AsyncDisposableStack): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-bench-'));
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

export async function openScratch(
  stack: AsyncDisposableStack,
): Promise<Scratch> {
  const folder = await openFolder(stack);
  const { connectionString } = stack.use(
    await startEmbeddedPostgres({
      dataDir: join(folder, 'data'),
      log: createLog('warn'),
      signal: new AbortController().signal,
    }),
  );
  return { folder, connectionString };
}

/** Opens the same, and creates an empty mirror in it. */
export async function openScratchWarehouse(
  stack: AsyncDisposableStack,
): Promise<Scratch & { readonly warehouse: Warehouse }> {
  const scratch = await openScratch(stack);
  const warehouse = stack.use(
    openWarehouse({
      url: scratch.connectionString,
      onIdleError: () => undefined,
    }),
  );
  await migrate(warehouse.db);
  return { ...scratch, warehouse };
}

/** Returns the plain numbers among the arguments of the command line. */
export function givenNumbers(): number[] {
  return process.argv
    .slice(2)
    .filter((word) => /^\d+$/.test(word))
    .map(Number);
}

export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;
}

export function say(what: string, value: string, wanted = ''): void {
  process.stdout.write(`| ${what} | ${value} | ${wanted} |\n`);
}

/** Prints a row that has a target: the benchmark fails if it is missed. */
export function sayGate(
  what: string,
  value: string,
  wanted: string,
  isMet: boolean,
): void {
  say(what, isMet ? value : `**${value}**`, wanted);
  if (!isMet) process.exitCode = 1;
}

export function sayLoad(when: 'before' | 'after'): void {
  const loads = loadavg().map((load) => load.toFixed(1));
  say(`load of the machine ${when}`, loads.join(' '));
}
