/**
 * Every statement that src declares with `statement(…)` is prepared against a migrated
 * database, and the columns that Postgres reports are compared with the declared ones.
 * Nothing is executed.
 */
import { globSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { findProblems } from '../support/prepared-statements.ts';
import { findStatements } from '../support/sql-statements.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const FIXTURES = 'test/postgres/fixtures/*.ts';
const STATEMENTS = findStatements(ROOT, ['src/**/*.ts', 'jobs/**/*.ts']);

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
    expect(await findProblems(client, found)).toEqual([]);
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
      problems.push((await findProblems(client, fixture)).join('; '));
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
