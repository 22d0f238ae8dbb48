/**
 * Prepares a declared statement on a server, and compares the columns that the server
 * reports with the declared ones. Nothing is executed.
 */
import type { Client, FieldDef, Submittable } from 'pg';
import type { DeclaredStatement } from './sql-statements.ts';

/** The declared type for the id of each Postgres type. */
const TYPE_OF_OID: Readonly<Record<number, string>> = {
  16: 'boolean',
  17: 'bytes',
  19: 'text',
  20: 'bigint',
  21: 'int',
  23: 'int',
  25: 'text',
  114: 'json',
  701: 'float',
  1009: 'text[]',
  1043: 'text',
  1184: 'instant',
  1700: 'numeric',
  2278: 'void',
  2950: 'uuid',
  2951: 'uuid[]',
  3802: 'json',
};

/**
 * @returns one line for each difference between what is declared and what Postgres
 *   reports
 */
export async function findProblems(
  client: Client,
  { columns, variants }: DeclaredStatement,
): Promise<string[]> {
  const problems = new Set<string>();
  for (const text of variants) {
    try {
      const fields = await describeColumns(client, text);
      for (const problem of await compare(client, columns, fields))
        problems.add(problem);
    } catch (error) {
      problems.add(`${String(error)} in: ${text}`);
    }
  }
  return [...problems];
}

async function compare(
  client: Client,
  declared: Readonly<Record<string, string>>,
  fields: readonly FieldDef[],
): Promise<string[]> {
  const actual = fields.map(({ name }) => name);
  const expected = Object.keys(declared);
  if (actual.toSorted().join() !== expected.toSorted().join()) {
    return [
      `the columns are ${actual.join(', ')}, declared are ${expected.join(', ')}`,
    ];
  }
  const problems: string[] = [];
  for (const field of fields) {
    const stated = declared[field.name] ?? '';
    const type = TYPE_OF_OID[field.dataTypeID] ?? `type ${field.dataTypeID}`;
    if (stated.replace(/[?!]$/, '') !== type) {
      problems.push(`${field.name} is ${type}, declared as ${stated}`);
    } else if (!/[?!]$/.test(stated) && (await takesNull(client, field))) {
      problems.push(`${field.name} can be null, declared as ${stated}`);
    }
  }
  return problems;
}

/**
 * Whether the field is a table's column that accepts null. Returns false for an
 * expression, because Postgres does not report whether its value can be null.
 */
async function takesNull(
  client: Client,
  { tableID, columnID }: FieldDef,
): Promise<boolean> {
  const { rows } = await client.query<{ isNullable: boolean }>(
    `select not attnotnull as "isNullable" from pg_attribute where attrelid = $1 and attnum = $2`,
    [tableID, columnID],
  );
  return rows[0]?.isNullable ?? false;
}

/** Sends Parse and Describe without Bind and Execute. */
function describeColumns(
  client: Client,
  text: string,
): Promise<readonly FieldDef[]> {
  return new Promise((settle, reject) => {
    let fields: readonly FieldDef[] = [];
    const submitted: Submittable & Record<string, unknown> = {
      submit(connection) {
        connection.parse({ name: '', text, types: [] }, true);
        connection.describe({ type: 'S', name: '' }, true);
        connection.sync();
      },
      handleRowDescription(message: { readonly fields: readonly FieldDef[] }) {
        ({ fields } = message);
      },
      handleError: reject,
      handleReadyForQuery: () => settle(fields),
    };
    client.query(submitted);
  });
}
