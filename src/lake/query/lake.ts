/**
 * Opens the newest snapshot of the lake for queries: makes local copies of its files, and
 * starts a DuckDB engine that can read nothing else.
 */
import type { DuckDBConnection } from '@duckdb/node-api';
import { PermanentError } from '../../errors/errors.ts';
import {
  LAKE_TABLES,
  type LakeTable,
  SUMMARY_TABLES,
} from '../tables/columns.ts';
import type { Asset } from '../../ledger/assets.ts';
import { addAssets } from './asset-units.ts';
import type { AddFile } from '../delta/actions.ts';
import { listObjects, logPrefix } from '../delta/listing.ts';
import { readTable } from '../delta/log.ts';
import type { ObjectStore } from '../../storage/object-store.ts';
import { confine, type LakeAccess, openEngine } from '../local/duckdb.ts';
import { fetchFiles } from '../local-copies.ts';
import { type LakeSnapshot, readSnapshot } from '../snapshot.ts';
import {
  cutMonths,
  isWholeMonth,
  overlapsMonth,
  type QuestionRange,
} from '../tables/summaries.ts';
import { countedEntries, rootOf, rowsOf, SHAPES } from '../tables/tables.ts';

export interface LakeOptions {
  readonly objects: ObjectStore;
  readonly scratchDir: string;
  /**
   * The query that will run. Tables that it does not mention stay empty, and their files
   * are not fetched.
   */
  readonly sql?: string;
  /**
   * The time range of a ready question. Whole months are answered from their summaries,
   * so entries are fetched only for months that the range covers partly, unless the
   * question reads the entries of the whole range.
   */
  readonly range?: QuestionRange | undefined;
  /** The assets whose decimals are known; none by default. */
  readonly assets?: readonly Asset[];
}

export interface Lake extends AsyncDisposable {
  /** Number of the snapshot. */
  readonly version: number;
  /** A connection that can read the lake's files and nothing else. */
  readonly connection: DuckDBConnection;
}

/**
 * Opens the newest snapshot.
 * @throws PermanentError `LAKE_MISSING` if no lake has been built yet,
 *   `LAKE_FILE_CORRUPT` if a file does not match its log, and the errors of `readTable`
 */
export async function openLake(
  options: LakeOptions,
  signal: AbortSignal,
): Promise<Lake> {
  await using stack = new AsyncDisposableStack();
  const engine = stack.use(await openEngine(options.scratchDir));
  const { objects, scratchDir, sql, range, assets = [] } = options;
  const access = { ...engine, objects, scratchDir, signal };
  const snapshot = await readSnapshot(access);
  if (snapshot === undefined) {
    throw new PermanentError(
      `Cannot read the lake: none has been built in ${objects.url} yet; run ` +
        `'ledger-mirror load', or check OBJECT_STORE_URL`,
      { code: 'LAKE_MISSING', meta: { store: objects.url } },
    );
  }
  const used = usedTables(sql, engine.connection);
  const paths = new Map<LakeTable, readonly string[]>();
  for (const table of LAKE_TABLES) {
    const files = used.has(table)
      ? await findFiles(access, table, snapshot)
      : [];
    const needed = files.filter((file) => isNeeded(table, file, range));
    paths.set(table, await fetchFiles(table, needed, access));
  }
  await createViews(engine.connection, paths);
  await addAssets(engine.connection, assets);
  await confine(engine.connection, [...paths.values()].flat());
  const owned = stack.move();
  return {
    version: snapshot.moment,
    connection: engine.connection,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function createViews(
  connection: DuckDBConnection,
  paths: ReadonlyMap<LakeTable, readonly string[]>,
): Promise<void> {
  const coverage = rowsOf('coverage', paths.get('coverage') ?? [], false);
  const views = new Map<string, string>();
  for (const table of LAKE_TABLES) {
    const rows = rowsOf(table, paths.get(table) ?? [], !SHAPES[table].isWhole);
    const isEntries = table === 'ledger_entries';
    views.set(
      table,
      `from ${isEntries ? countedEntries(rows, coverage) : rows}`,
    );
  }
  // Counts each entry once, like the warehouse's view of the same name.
  const entries =
    'select * exclude (is_counted) from ledger_entries where is_counted';
  views.set('entries', entries);

  // A statement written for the warehouse may qualify names with its schema.
  await connection.run('create schema mirror');
  for (const [name, rows] of views) {
    await connection.run(`create view ${name} as ${rows}`);
    await connection.run(`create view mirror.${name} as from main.${name}`);
  }
}

/** Returns the files of a table in the snapshot. */
async function findFiles(
  access: Omit<LakeAccess, 'listed'>,
  table: LakeTable,
  snapshot: LakeSnapshot,
): Promise<readonly AddFile[]> {
  const named = snapshot.tables[table];
  if (named === undefined) return [];
  const root = rootOf(table);
  const listed = await listObjects(access, logPrefix(root));
  const state = await readTable({ ...access, listed }, root, named.version);
  if (state?.metaData.id === named.id) return [...state.live.values()];
  throw new PermanentError(
    `Cannot read the lake: ${root} is not the table that version ` +
      `${snapshot.moment} of the lake names; restore it, or run load, which builds ` +
      'it again',
    {
      code: state === undefined ? 'LAKE_TABLE_MISSING' : 'LAKE_FOREIGN',
      meta: { table },
    },
  );
}

function isNeeded(
  table: LakeTable,
  file: AddFile,
  range: QuestionRange | undefined,
): boolean {
  const month = file.partitionValues['month'];
  if (range === undefined || !month) return true;
  const isSummary = (SUMMARY_TABLES as readonly string[]).includes(table);
  if (isSummary) return isWholeMonth(month, range);
  return range.isOfEntries === true
    ? overlapsMonth(month, range)
    : cutMonths(range).includes(month);
}

/**
 * Finds the tables that a query uses by looking for their names in its text. If the query
 * calls a function that takes table names as strings, all tables are considered used.
 * Entries also need the coverage, which determines which of them count.
 */
function usedTables(
  sql: string | undefined,
  connection: DuckDBConnection,
): ReadonlySet<LakeTable> {
  if (sql === undefined || /\bquery(?:_table)?\b/i.test(sql))
    return new Set(LAKE_TABLES);
  const text = sql.toLowerCase();
  const used = new Set(LAKE_TABLES.filter((table) => text.includes(table)));
  if (usesEntriesView(text, connection)) used.add('ledger_entries');
  if (used.has('ledger_entries')) used.add('coverage');
  return used;
}

/**
 * Whether a query uses the view `entries`. Summaries have a column of that name, so
 * finding the word is not enough and DuckDB's parser decides. It returns no names for SQL
 * that it cannot parse, in which case the view is considered used.
 */
function usesEntriesView(text: string, connection: DuckDBConnection): boolean {
  if (!/\bentries\b/.test(text)) return false;
  const names = connection.getTableNames(text, false);
  return names.length === 0 || names.includes('entries');
}
