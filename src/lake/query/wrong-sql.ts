/**
 * Describes what is wrong with a statement. If DuckDB could not find a table, a column or
 * a function, the description is our own and suggests a name; for all other mistakes it
 * is DuckDB's message.
 */
import type { DuckDBConnection } from '@duckdb/node-api';
import { didYouMean, findMeant, findNear } from '../../errors/did-you-mean.ts';

type Noun = 'table' | 'column' | 'function';

interface Missing {
  readonly noun: Noun;
  readonly name: string;
  /** The table in which DuckDB looked for the column, if the statement says so. */
  readonly owner?: string | undefined;
  /** The names that DuckDB suggests, most likely first. */
  readonly offered: readonly string[];
}

const OFFERED_MAX = 12;
const TABLE = /^Catalog Error: Table with name (\S+) does not exist!/;
const FUNCTION = /^Catalog Error: \w+ Function with name (\S+) does not exist!/;
const COLUMN = /^Binder Error: Referenced column "([^"]+)" not found/;
const COLUMN_OF =
  /^Binder Error: (?:Values list|Table) "([^"]+)" does not have a column named "([^"]+)"/;
const OFFERED_LINE = /^(?:Did you mean|Candidate bindings:) (.*)$/m;
/** The line that DuckDB quotes, with a marker below the mistake. */
const PLACE = /\n\nLINE \d+:[\s\S]*$/;
const TABLE_NAMED = /(?:\bfrom|\bjoin|,)\s*(?:"?mirror"?\.)?"?(\w+)/gi;
const OVERFLOW = /Overflow in HUGEINT/;

/**
 * Describes an error that DuckDB reported while preparing the statement.
 * @param sql the statement: names of its own tables are suggested first
 */
export async function describeWrongSql(
  message: string,
  sql: string,
  connection: DuckDBConnection,
): Promise<string> {
  const missing = readMissing(message);
  if (missing === undefined)
    return `SQL: ${message.replace(/^Failed to extract statements: /, '')}`;
  const { noun, name, owner } = missing;
  const { own, others } = await knownNames(missing, sql, connection);
  const near = findNear(name, own) ?? findNear(name, [...others.keys()]);
  const meant = near ?? findMeant(name, own);
  const owners = others.get(meant ?? '');
  const known = [...own, ...others.keys()];
  const where = owner === undefined ? '' : ` in ${owner}`;
  const what = `SQL: there is no ${noun} ${name}${where}`;
  const place = PLACE.exec(message)?.[0] ?? '';
  if (meant !== undefined) {
    const of = owners === undefined ? '' : ` of ${owners}`;
    return `${what}${didYouMean(`${meant}${of}`)}${place}`;
  }
  const shown = known.slice(0, OFFERED_MAX).join(', ');
  const more = known.length > OFFERED_MAX ? ' and more' : '';
  return `${what}${shown === '' ? '' : `; there are ${shown}${more}`}${place}`;
}

/**
 * Gives advice on an error that DuckDB reported while running the query.
 * @returns the advice as the end of a sentence; empty if there is none
 */
export function adviseOnFailure(message: string): string {
  return OVERFLOW.test(message)
    ? '; the sum has more than 38 digits: write exact_sum(quantity, quantity_text) ' +
        'for sum(quantity)'
    : '';
}

function readMissing(message: string): Missing | undefined {
  const line = OFFERED_LINE.exec(message)?.[1] ?? '';
  const offered = [...line.matchAll(/"([^"]+)"/g)].map(([, name = '']) =>
    name.slice(name.lastIndexOf('.') + 1),
  );
  const [, table] = TABLE.exec(message) ?? [];
  if (table !== undefined) return { noun: 'table', name: table, offered };
  const [, called] = FUNCTION.exec(message) ?? [];
  if (called !== undefined) return { noun: 'function', name: called, offered };
  const [, column] = COLUMN.exec(message) ?? [];
  if (column !== undefined) return { noun: 'column', name: column, offered };
  const [, owner, name] = COLUMN_OF.exec(message) ?? [];
  return name === undefined
    ? undefined
    : { noun: 'column', name, owner, offered };
}

interface KnownNames {
  /** The more likely names. For a column, the columns of tables in the statement. */
  readonly own: readonly string[];
  /** Other columns, each with one table that has it. */
  readonly others: ReadonlyMap<string, string>;
}

/**
 * Returns the names that the user may have meant. For functions, only DuckDB's
 * suggestions are used, because there are thousands of functions.
 */
async function knownNames(
  { noun, offered }: Missing,
  sql: string,
  connection: DuckDBConnection,
): Promise<KnownNames> {
  const nothingElse = new Map<string, string>();
  if (noun === 'function') return { own: offered, others: nothingElse };
  if (noun === 'table') {
    const found = await connection.runAndReadAll(
      `select view_name from duckdb_views() where not internal and
         schema_name = 'main' order by 1`,
    );
    const names = found.getRows().map(([name]) => String(name));
    return { own: [...new Set([...offered, ...names])], others: nothingElse };
  }
  const found = await connection.runAndReadAll(
    `select table_name, column_name from duckdb_columns() where not internal and
       schema_name = 'main' order by 1, column_index`,
  );
  const columns = found
    .getRows()
    .map(([table, column]) => ({ table: String(table), name: String(column) }));
  const named = namedTables(sql);
  const isOwn = ({ table }: { readonly table: string }): boolean =>
    named.has(table);
  // DuckDB also suggests names that the statement defines itself.
  const suggested = offered.filter(
    (name) =>
      columns.some((column) => column.name === name && isOwn(column)) ||
      columns.every((column) => column.name !== name),
  );
  const own = new Set([
    ...suggested,
    ...columns.filter(isOwn).map(({ name }) => name),
  ]);
  const others = new Map(
    columns
      .filter(({ name }) => !own.has(name))
      .toReversed()
      .map(({ name, table }) => [name, table]),
  );
  return { own: [...own], others };
}

/**
 * Returns the names in places where SQL expects a table. DuckDB's parser would instead
 * return the tables behind a view, and nothing for a name with a schema.
 */
function namedTables(sql: string): ReadonlySet<string> {
  const named = sql.matchAll(TABLE_NAMED);
  return new Set([...named].map(([, name = '']) => name.toLowerCase()));
}
