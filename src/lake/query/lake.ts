/** The lake at one moment, opened for questions: copies of its files, and an engine that can read these and nothing else. */
import type { DuckDBConnection } from '@duckdb/node-api';
import { PermanentError } from '../../errors/errors.ts';
import { LAKE_TABLES, type LakeTable, SUMMARY_TABLES } from '../tables/columns.ts';
import type { AddFile } from '../delta/actions.ts';
import { listObjects, logPrefix } from '../delta/listing.ts';
import { readTable } from '../delta/log.ts';
import type { ObjectStore } from '../../storage/object-store.ts';
import { confine, type LakeAccess, openEngine } from '../local/duckdb.ts';
import { fetchFiles } from '../local-files.ts';
import { type LakeSnapshot, readSnapshot } from '../snapshot.ts';
import { cutMonths, type InstantRange, isWholeMonth } from '../tables/summaries.ts';
import { countedEntries, rootOf, rowsOf, SHAPES } from '../tables/tables.ts';

export interface LakeOptions {
  readonly objects: ObjectStore;
  readonly scratchDir: string;
  /** What will be asked: tables that it does not name stay empty, and their files are not brought. */
  readonly sql?: string;
  /** Where what is asked takes whole months from their summaries: entries of other months than it cuts stay away. */
  readonly range?: InstantRange | undefined;
}

export interface Lake extends AsyncDisposable {
  /** The moment's number. */
  readonly version: number;
  /** Confined to the lake's files. */
  readonly connection: DuckDBConnection;
}

/**
 * @throws PermanentError `LAKE_MISSING` where none was built yet, `LAKE_FILE_CORRUPT` where a file is not what
 * its log says, and what `readTable` throws
 */
export async function openLake(options: LakeOptions, signal: AbortSignal): Promise<Lake> {
  await using stack = new AsyncDisposableStack();
  const engine = stack.use(await openEngine(options.scratchDir));
  const { objects, scratchDir, sql, range } = options;
  const access = { ...engine, objects, scratchDir, signal };
  const moment = await readSnapshot(access);
  if (moment === undefined) {
    throw new PermanentError(
      `Cannot read the lake: none was built in ${objects.url} yet; run 'ledger-mirror load', or look at OBJECT_STORE_URL`,
      { code: 'LAKE_MISSING', meta: { store: objects.url } },
    );
  }
  const reached = reachedTables(sql, engine.connection);
  const paths = new Map<LakeTable, readonly string[]>();
  for (const table of LAKE_TABLES) {
    const files = reached.has(table) ? await findFiles(access, table, moment) : [];
    const asked = files.filter((file) => isOfRange(table, file, range));
    paths.set(table, await fetchFiles(table, asked, access));
  }
  const coverage = rowsOf('coverage', paths.get('coverage') ?? [], false);
  const views = LAKE_TABLES.map((table) => {
    const rows = rowsOf(table, paths.get(table) ?? [], !SHAPES[table].isWhole);
    return [
      table,
      `from ${table === 'ledger_entries' ? countedEntries(rows, coverage) : rows}`,
    ];
  });
  // Each entry once, as Postgres has it.
  views.push([
    'entries',
    'select * exclude (is_counted) from ledger_entries where is_counted',
  ]);
  // A statement that was written for Postgres names its schema.
  await engine.connection.run('create schema mirror');
  for (const [name, rows] of views)
    await engine.connection.run(
      `create view ${name} as ${rows}; create view mirror.${name} as from main.${name}`,
    );
  await confine(engine.connection, [...paths.values()].flat());
  const owned = stack.move();
  return {
    version: moment.moment,
    connection: engine.connection,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function findFiles(
  access: Omit<LakeAccess, 'listed'>,
  table: LakeTable,
  moment: LakeSnapshot,
) {
  const named = moment.tables[table];
  if (named === undefined) return [];
  const root = rootOf(table);
  const listed = await listObjects(access, logPrefix(root));
  const state = await readTable({ ...access, listed }, root, named.version);
  if (state?.metaData.id === named.id) return [...state.live.values()];
  throw new PermanentError(
    `Cannot read the lake: ${root} is not the table that moment ${moment.moment} names; restore it, or load to build it again`,
    {
      code: state === undefined ? 'LAKE_TABLE_MISSING' : 'LAKE_FOREIGN',
      meta: { table },
    },
  );
}

function isOfRange(
  table: LakeTable,
  file: AddFile,
  range: InstantRange | undefined,
): boolean {
  const month = file.partitionValues['month'];
  if (range === undefined || !month) return true;
  const isSummary = (SUMMARY_TABLES as readonly string[]).includes(table);
  return isSummary ? isWholeMonth(month, range) : cutMonths(range).includes(month);
}

/** By their names, or by functions that put a name together. Which entries count is for the coverage to say. */
function reachedTables(
  sql: string | undefined,
  connection: DuckDBConnection,
): ReadonlySet<LakeTable> {
  if (sql === undefined || /\bquery(?:_table)?\b/i.test(sql)) return new Set(LAKE_TABLES);
  const text = sql.toLowerCase();
  const reached = new Set(LAKE_TABLES.filter((table) => text.includes(table)));
  // Summaries have a column of that name: the parser tells them apart. Of what it cannot read it names nothing.
  const names = /\bentries\b/.test(text)
    ? connection.getTableNames(text, false)
    : ['none'];
  if (names.length === 0 || names.includes('entries')) reached.add('ledger_entries');
  return reached.has('ledger_entries') ? reached.add('coverage') : reached;
}
