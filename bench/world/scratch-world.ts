/**
 * Shared by every benchmark: a temporary folder and server, and numbers from the command
 * line.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLog } from '../../src/logging/log.ts';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { openWarehouse, type Warehouse } from '../../src/postgres/database.ts';
import { migrate } from '../../src/postgres/migrate.ts';

const SIGNALS = ['SIGINT', 'SIGTERM'] as const;
/** The exit code of a benchmark that a signal ended. */
const ENDED_CODE = 143;

export interface Scratch {
  readonly folder: string;
  /** The address of a Postgres whose data is below `data/` in the folder. */
  readonly connectionString: string;
}

/**
 * Creates a folder that is removed with the stack. A benchmark that is ended by a signal
 * still disposes of its stack; otherwise its Postgres would keep running and its data
 * would stay.
 */
export async function openFolder(stack: AsyncDisposableStack): Promise<string> {
  const end = (): void => {
    void stack.disposeAsync().finally(() => process.exit(ENDED_CODE));
  };
  for (const signal of SIGNALS) {
    process.once(signal, end);
    stack.defer(() => void process.off(signal, end));
  }
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

/** Does the same as `openScratch`, and also creates an empty mirror in the folder. */
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
