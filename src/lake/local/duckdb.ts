/** DuckDB as this project uses it: in memory, bounded, without extensions from elsewhere. */
import type { DuckDBConnection, DuckDBResult, DuckDBValue } from '@duckdb/node-api';
import { errorCode, PermanentError } from '../../errors/errors.ts';
import type { ListedObject } from '../../storage/object-store.ts';
import { scratchFolder, type StoreAccess } from './scratch.ts';

/** What DuckDB may use beside this process's own memory; beyond it, it spills to its folder. */
const QUERY_MEMORY_LIMIT = '512MB';
/** A build often follows a load in the same process. */
export const BUILD_MEMORY_LIMIT = '144MB';
const SPILL_LIMIT = '20GB';
const THREADS = 2;

/** Amounts below this can be added ten thousand million times before 38 digits run out. */
const SAFE_AMOUNT = '9999999999999999999999999999';

/**
 * `exact_sum(quantity, quantity_text)`: the sum to the last digit, whatever its size; 0 of nothing. The rare
 * amounts that DECIMAL cannot add up safely are added as text-backed integers, the others at full speed.
 */
const EXACT_SUM = `create macro exact_sum(amount, amount_text) as (
  cast(cast(coalesce(sum(case when amount between -${SAFE_AMOUNT} and ${SAFE_AMOUNT} then amount end), 0) as varchar) as bignum)
  + coalesce(sum(case when amount between -${SAFE_AMOUNT} and ${SAFE_AMOUNT} then null
      else cast(coalesce(cast(amount as varchar), amount_text) as bignum) end), cast('0' as bignum)))`;

/** A DuckDB that may read and write below `folder`. */
export interface Engine {
  readonly connection: DuckDBConnection;
  readonly folder: string;
}

/** What reading the lake takes: its store, what lies there, an engine for checkpoints and files, and a way to stop. */
export interface LakeAccess extends Engine, StoreAccess {
  /** Objects of the lake, as one listing has them. */
  readonly listed: readonly ListedObject[];
}

type OwnEngine = Engine & AsyncDisposable;

/** With a folder of its own, removed with all that is in it. */
export async function openEngine(
  scratchDir: string,
  memoryLimit?: string,
): Promise<OwnEngine> {
  await using stack = new AsyncDisposableStack();
  const { path } = stack.use(await scratchFolder(scratchDir));
  const engine = stack.use(await openDuckDb(path, memoryLimit));
  const owned = stack.move();
  return { ...engine, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

/** @param folder an existing one of the caller's: what does not fit in memory spills into it */
export async function openDuckDb(
  folder: string,
  memoryLimit = QUERY_MEMORY_LIMIT,
): Promise<OwnEngine> {
  // Its library takes tens of megabytes: processes that only load, export or serve stay without it.
  const { DuckDBInstance } = await import('@duckdb/node-api');
  const instance = await DuckDBInstance.create(':memory:', {
    threads: String(THREADS),
    memory_limit: memoryLimit,
    temp_directory: folder,
    max_temp_directory_size: SPILL_LIMIT,
    allocator_flush_threshold: '16MB',
    allocator_bulk_deallocation_flush_threshold: '16MB',
    autoinstall_known_extensions: 'false',
    autoload_known_extensions: 'false',
    // What a query could otherwise learn of this machine, or leave on it.
    allow_community_extensions: 'false',
    allow_persistent_secrets: 'false',
  });
  const connection = await instance.connect();
  await connection.run(`set TimeZone = 'UTC'`);
  await connection.run(EXACT_SUM);
  return {
    connection,
    folder,
    [Symbol.asyncDispose]: async () => {
      connection.closeSync();
      instance.closeSync();
      await Promise.resolve();
    },
  };
}

/** From here on the connection reads these files and nothing else, and this cannot be undone. */
export async function confine(
  connection: DuckDBConnection,
  paths: readonly string[],
): Promise<void> {
  await connection.run(`set allowed_paths = ${literals(paths)}`);
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
    throw new PermanentError(`Cannot ${action}: ${error.message}`, {
      code: 'DUCKDB',
      cause: error,
    });
  } finally {
    signal.removeEventListener('abort', interrupt);
  }
}

/** Its `ResultReturnType.INVALID`; the library itself is not loaded for a number. */
const FAILED = 0;

/**
 * For whoever has read a stream to its end: one that failed on the way ends in the same way, and only its kind tells.
 * @throws Error
 */
export function requireWhole({ returnType }: DuckDBResult): void {
  const kind: number = returnType;
  if (kind !== FAILED) return;
  throw new Error(
    'DuckDB failed before the last row; EXPLAIN ANALYZE in front of the statement tells why',
  );
}

/** All rows of one statement. */
export async function queryRows(
  { connection, signal }: Pick<LakeAccess, 'connection' | 'signal'>,
  action: string,
  sql: string,
): Promise<readonly (readonly DuckDBValue[])[]> {
  const read = async () => (await connection.runAndReadAll(sql)).getRows();
  return interruptible(connection, action, signal, read);
}

/** A string as a SQL literal. */
export function literal(value: string): string {
  return `'${value.replaceAll("'", "''")}'`;
}

/** A list of strings as SQL. */
export function literals(values: readonly string[]): string {
  return `[${values.map(literal).join(', ')}]`;
}
