/**
 * What is wrong with a statement, in words of our own where DuckDB names what it did not
 * find: a table, a column or a function. Other mistakes keep DuckDB's words.
 */
import type { DuckDBConnection } from '@duckdb/node-api';
import { didYouMean, findMeant, findNear } from '../../errors/did-you-mean.ts';

type Noun = 'table' | 'column' | 'function';

interface Missing {
  readonly noun: Noun;
  readonly name: string;
  /** What the column was looked for in, if the statement names it. */
  readonly owner?: string | undefined;
  /** What DuckDB offers, the likeliest first. */
  readonly offered: readonly string[];
}

const OFFERED_MAX = 12;
const TABLE = /^Catalog Error: Table with name (\S+) does not exist!/;
const FUNCTION = /^Catalog Error: \w+ Function with name (\S+) does not exist!/;
const COLUMN = /^Binder Error: Referenced column "([^"]+)" not found/;
const COLUMN_OF =
  /^Binder Error: (?:Values list|Table) "([^"]+)" does not have a column named "([^"]+)"/;
const OFFERED_LINE = /^(?:Did you mean|Candidate bindings:) (.*)$/m;
/** The line of the statement with the mistake, and a mark below its place. */
const PLACE = /\n\nLINE \d+:[\s\S]*$/;
const OVERFLOW = /Overflow in HUGEINT/;

/** @returns what to tell of an error that DuckDB met while it read the statement */
export async function describeWrongSql(
  message: string,
  connection: DuckDBConnection,
): Promise<string> {
  const missing = readMissing(message);
  if (missing === undefined)
    return `SQL: ${message.replace(/^Failed to extract statements: /, '')}`;
  const { noun, name, owner } = missing;
  const known = await knownNames(missing, connection);
  const meant = findNear(name, known) ?? findMeant(name, missing.offered);
  const where = owner === undefined ? '' : ` in ${owner}`;
  const what = `SQL: there is no ${noun} ${name}${where}`;
  const place = PLACE.exec(message)?.[0] ?? '';
  if (meant !== undefined) return `${what}${didYouMean(meant)}${place}`;
  const shown = known.slice(0, OFFERED_MAX).join(', ');
  const more = known.length > OFFERED_MAX ? ' and more' : '';
  return `${what}${shown === '' ? '' : `; there are ${shown}${more}`}${place}`;
}

/**
 * @returns what to do about an error that DuckDB met while it answered, as the end of a
 *   sentence; empty if nothing is known
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

/** The names that could be meant. DuckDB offers functions itself: there are thousands. */
async function knownNames(
  { noun, offered }: Missing,
  connection: DuckDBConnection,
): Promise<readonly string[]> {
  if (noun === 'function') return offered;
  // Candidates are columns of the statement's own tables, so they go first.
  const sql =
    noun === 'table'
      ? `select view_name from duckdb_views() where not internal and
           schema_name = 'main' order by 1`
      : `select distinct column_name from duckdb_columns() where not internal and
           schema_name = 'main' order by 1`;
  const found = (await connection.runAndReadAll(sql)).getRows();
  return [...new Set([...offered, ...found.map(([name]) => String(name))])];
}
