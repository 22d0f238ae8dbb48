/**
 * Every statement that src declares with `statement(…)` is prepared against a migrated
 * database, and the columns that Postgres reports are compared with the declared ones.
 * Nothing is executed.
 */
import { globSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { Client, type FieldDef, type Submittable } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import {
  type DeclaredStatement,
  findStatements,
} from '../support/sql-statements.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const FIXTURES = 'test/postgres/fixtures/*.ts';
const STATEMENTS = findStatements(ROOT, ['src/**/*.ts', 'jobs/**/*.ts']);

/** The declared type by the id of Postgres' own types. */
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

const database = await freshDatabase({ isMigrated: true });
const client = new Client({ connectionString: database.url });
beforeAll(() => client.connect());
afterAll(() => client.end());

test('the sources declare the statements that this test prepares', () => {
  expect(STATEMENTS.length).toBeGreaterThan(0);
});

test('no file outside src/postgres runs a statement that is not declared', () => {
  const files = globSync(['src/**/*.ts', 'jobs/**/*.ts'], { cwd: ROOT });
  const undeclared = files.filter(
    (path) =>
      !path.startsWith('src/postgres/') &&
      /\.execute\(\s*(?:db|tx|this\.#db)\b/.test(
        readFileSync(resolve(ROOT, path), 'utf8'),
      ),
  );
  expect(undeclared).toEqual([]);
});

test.each(STATEMENTS)(
  'the statement at $place yields the columns that it declares',
  async (found) => {
    expect(await problemsOf(found)).toEqual([]);
  },
);

describe('a statement is refused', () => {
  const fixtures = new Map(
    findStatements(ROOT, [FIXTURES]).map((found) => [
      found.place.replace(/.*:/, ''),
      found,
    ]),
  );

  test('if anything of it is not as declared', async () => {
    const problems: string[] = [];
    for (const fixture of fixtures.values())
      problems.push((await problemsOf(fixture)).join('; '));
    expect(problems).toEqual([
      '',
      'runId is uuid, declared as text',
      'sourceUrl can be null, declared as text',
      'the columns are runId, kind, declared are runId',
      'the columns are runId, declared are runId, kind',
      expect.stringContaining('column "gone" does not exist'),
      '',
      '',
      'the columns are runId, isOpen, declared are runId',
      '',
      '',
    ]);
  });

  test('and a name has one value throughout a statement', () => {
    const variants = [...fixtures.values()].at(-2)?.variants;
    expect(variants).toEqual([
      "select run_id::text as key from mirror.runs where state = 'open'",
      'select code as key from mirror.doubts where closed_at is null',
    ]);
  });

  test('and its variants follow its conditions', () => {
    const variants = [...fixtures.values()].at(-1)?.variants;
    expect(variants).toEqual([
      'select run_id as "runId" from mirror.runs where kind = $1 order by run_id asc',
      'select run_id as "runId" from mirror.runs where true order by run_id asc',
      'select run_id as "runId" from mirror.runs where kind = $1 order by run_id desc',
      'select run_id as "runId" from mirror.runs where true order by run_id desc',
    ]);
  });
});

/**
 * @returns one line for each difference between what is declared and what Postgres says
 */
async function problemsOf({
  columns,
  variants,
}: DeclaredStatement): Promise<string[]> {
  const problems = new Set<string>();
  for (const text of variants) {
    try {
      for (const problem of await compare(columns, await describeColumns(text)))
        problems.add(problem);
    } catch (error) {
      problems.add(`${String(error)} in: ${text}`);
    }
  }
  return [...problems];
}

async function compare(
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
    } else if (!/[?!]$/.test(stated) && (await takesNull(field))) {
      problems.push(`${field.name} can be null, declared as ${stated}`);
    }
  }
  return problems;
}

/**
 * Whether the field is a column of a table that takes null; of an expression Postgres
 * does not say.
 */
async function takesNull({ tableID, columnID }: FieldDef): Promise<boolean> {
  const { rows } = await client.query<{ isNullable: boolean }>(
    `select not attnotnull as "isNullable" from pg_attribute where attrelid = $1 and attnum = $2`,
    [tableID, columnID],
  );
  return rows[0]?.isNullable ?? false;
}

/** Sends Parse and Describe without Bind and Execute. */
function describeColumns(text: string): Promise<readonly FieldDef[]> {
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
