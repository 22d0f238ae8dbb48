/**
 * DuckDB as this project uses it: in memory, with limits, and without external
 * extensions.
 */
import type {
  DuckDBConnection,
  DuckDBResult,
  DuckDBValue,
} from '@duckdb/node-api';
import { errorCode, PermanentError } from '../../errors/errors.ts';
import type { ListedObject } from '../../storage/object-store.ts';
import { scratchFolder, type StoreAccess } from './scratch.ts';

/**
 * How much memory DuckDB may use, in addition to the memory of the rest of the process.
 * Data that does not fit is spilled to DuckDB's folder.
 */
const QUERY_MEMORY_LIMIT = '512MB';
/**
 * The memory limit of a build, lower than that of a query because a build often follows a
 * load in the same process.
 */
export const BUILD_MEMORY_LIMIT = '144MB';
const SPILL_LIMIT = '20GB';
const THREADS = 2;

/**
 * Amounts up to this limit can be added 10^10 times before the sum overflows the 38
 * digits of a DECIMAL.
 */
const SAFE_AMOUNT = '9999999999999999999999999999';

/**
 * SQL macro `exact_sum(quantity, quantity_text)`: the exact sum, however large; 0 if
 * there are no rows. The rare amounts that DECIMAL cannot add safely are added as
 * unbounded integers; all others are added at full speed.
 */
const EXACT_SUM = `create macro exact_sum(amount, amount_text) as (
  cast(cast(coalesce(sum(case when amount between -${SAFE_AMOUNT} and ${SAFE_AMOUNT} then amount end), 0) as varchar) as bignum)
  + coalesce(sum(case when amount between -${SAFE_AMOUNT} and ${SAFE_AMOUNT} then null
      else cast(coalesce(cast(amount as varchar), amount_text) as bignum) end), cast('0' as bignum)))`;

/** A DuckDB connection, and the folder that it may use. */
export interface Engine {
  readonly connection: DuckDBConnection;
  readonly folder: string;
}

/**
 * What is needed to read the lake: the store, a listing of it, an engine, and a signal
 * that stops the work.
 */
export interface LakeAccess extends Engine, StoreAccess {
  /** The objects of the lake, from one listing. */
  readonly listed: readonly ListedObject[];
}

type OwnEngine = Engine & AsyncDisposable;

/**
 * Opens DuckDB with its own scratch folder, which is removed with its contents on
 * disposal.
 */
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

/**
 * Opens DuckDB in memory.
 * @param folder an existing folder, owned by the caller, to which DuckDB spills what does
 *   not fit in memory
 */
export async function openDuckDb(
  folder: string,
  memoryLimit = QUERY_MEMORY_LIMIT,
): Promise<OwnEngine> {
  // Loaded on demand, because the library takes tens of megabytes and processes that only
  // load, export or serve never need it.
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
    // A query must not read anything else on this machine or leave anything behind.
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

/** Restricts the connection to these files. This cannot be undone. */
export async function confine(
  connection: DuckDBConnection,
  paths: readonly string[],
): Promise<void> {
  await connection.run(`set allowed_paths = ${literals(paths)}`);
  await connection.run('set enable_external_access = false');
  await connection.run('set lock_configuration = true');
}

/**
 * Runs `work`, interrupting the connection if the signal aborts.
 * @throws the signal's reason, or PermanentError `DUCKDB` with DuckDB's message
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
    if (!(error instanceof Error) || errorCode(error) !== 'UNKNOWN')
      throw error;
    throw new PermanentError(`Cannot ${action}: ${error.message}`, {
      code: 'DUCKDB',
      cause: error,
    });
  } finally {
    signal.removeEventListener('abort', interrupt);
  }
}

/**
 * DuckDB's `ResultReturnType.INVALID`, repeated here so that the library is not loaded
 * for one number.
 */
const FAILED = 0;

/**
 * Checks a streamed result after its last row. If a query fails halfway, DuckDB ends the
 * stream as if it were complete; only the result type tells the difference.
 * @throws Error if the query failed before its last row
 */
export function requireWhole({ returnType }: DuckDBResult): void {
  const kind: number = returnType;
  if (kind !== FAILED) return;
  throw new Error(
    'DuckDB failed before the last row; put EXPLAIN ANALYZE in front of ' +
      'the statement to see why',
  );
}

/** Returns all rows of one statement. */
export async function queryRows(
  { connection, signal }: Pick<LakeAccess, 'connection' | 'signal'>,
  action: string,
  sql: string,
): Promise<readonly (readonly DuckDBValue[])[]> {
  const read = async () => (await connection.runAndReadAll(sql)).getRows();
  return interruptible(connection, action, signal, read);
}

/** Writes a string as a SQL literal. */
export function literal(value: string): string {
  return `'${value.replaceAll("'", "''")}'`;
}

/** Writes strings as a SQL list. */
export function literals(values: readonly string[]): string {
  return `[${values.map(literal).join(', ')}]`;
}
