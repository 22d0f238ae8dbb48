/** DuckDB as this project uses it: in memory, bounded, without extensions from elsewhere. */
import type { DuckDBConnection } from '@duckdb/node-api';
import { errorCode, PermanentError } from '../core/errors.ts';
import { EXACT_SUM, literal } from './tables.ts';

/** What DuckDB may use beside this process's own memory; beyond it, it spills to its folder. */
const QUERY_MEMORY_LIMIT = '512MB';
/** A build writes two files at a time, and often follows a load in the same process. */
const BUILD_MEMORY_LIMIT = '384MB';
const SPILL_LIMIT = '20GB';
const THREADS = 2;
/** Kept in memory for each of the files that one statement writes, and then a row group: half of the usual one. */
const KEPT_ROWS = 61_440;

export interface Engine extends AsyncDisposable {
  readonly connection: DuckDBConnection;
}

/** @param spillDir an existing folder of the caller's, for what does not fit in memory */
export async function openDuckDb(spillDir: string, memoryLimit = QUERY_MEMORY_LIMIT): Promise<Engine> {
  const { connections, [Symbol.asyncDispose]: dispose } = await open(spillDir, memoryLimit, THREADS, 1);
  const [connection] = connections;
  if (connection === undefined) throw new Error('DuckDB gave no connection');
  return { connection, [Symbol.asyncDispose]: dispose };
}

export interface BuildEngine extends AsyncDisposable {
  readonly connections: readonly DuckDBConnection[];
}

/**
 * For many statements: each connection runs its own on one thread, side by side with the others. So no
 * statement waits for its slowest thread, and the rows of a file stay in the order in which they are read.
 */
export async function openBuildEngine(spillDir: string): Promise<BuildEngine> {
  const engine = await open(spillDir, BUILD_MEMORY_LIMIT, 1, THREADS);
  for (const connection of engine.connections) {
    await connection.run(`set partitioned_write_flush_threshold = ${KEPT_ROWS}`);
  }
  return engine;
}

async function open(
  spillDir: string,
  memoryLimit: string,
  threads: number,
  count: number,
): Promise<BuildEngine> {
  // Its library takes tens of megabytes: processes that only load, export or serve stay without it.
  const { DuckDBInstance } = await import('@duckdb/node-api');
  const instance = await DuckDBInstance.create(':memory:', {
    threads: String(threads),
    memory_limit: memoryLimit,
    temp_directory: spillDir,
    max_temp_directory_size: SPILL_LIMIT,
    allocator_flush_threshold: '16MB',
    allocator_bulk_deallocation_flush_threshold: '16MB',
    autoinstall_known_extensions: 'false',
    autoload_known_extensions: 'false',
    // What a query could otherwise learn of this machine, or leave on it.
    allow_community_extensions: 'false',
    allow_persistent_secrets: 'false',
  });
  const connections: DuckDBConnection[] = [];
  for (let number = 0; number < count; number += 1) {
    const connection = await instance.connect();
    await connection.run(`set TimeZone = 'UTC'`);
    connections.push(connection);
  }
  await connections[0]?.run(EXACT_SUM);
  return {
    connections,
    [Symbol.asyncDispose]: async () => {
      for (const connection of connections) connection.closeSync();
      instance.closeSync();
      await Promise.resolve();
    },
  };
}

/** From here on the connection reads files below `folder` and nothing else, and this cannot be undone. */
export async function confine(connection: DuckDBConnection, folder: string): Promise<void> {
  await connection.run(`set allowed_directories = [${literal(folder)}]`);
  await connection.run('set enable_external_access = false');
  await connection.run('set lock_configuration = true');
}

/**
 * Runs `work`, and stops what the connection is doing when the signal says so.
 * @throws the signal's reason, or PermanentError `DUCKDB` with DuckDB's first line
 */
export async function interruptible<Result>(
  connection: DuckDBConnection,
  action: string,
  signal: AbortSignal,
  work: () => Promise<Result>,
): Promise<Result> {
  signal.throwIfAborted();
  const interrupt = (): void => connection.interrupt();
  signal.addEventListener('abort', interrupt, { once: true });
  try {
    return await work();
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof Error) || errorCode(error) !== 'UNKNOWN') throw error;
    throw new PermanentError(`Cannot ${action}: ${error.message}`, { code: 'DUCKDB', cause: error });
  } finally {
    signal.removeEventListener('abort', interrupt);
  }
}
