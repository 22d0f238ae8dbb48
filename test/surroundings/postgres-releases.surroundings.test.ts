/**
 * The oldest supported release of Postgres, a later one, and one that is too old. All
 * other tests run on the newest, which the mirror embeds.
 */
import { resolve } from 'node:path';
import { Client } from 'pg';
import { describe, expect, test } from 'vitest';
import { POSTGRES_MAJOR_MIN } from '../../src/postgres/requirements.ts';
import { openHome } from '../cli/mirror-home.ts';
import { findProblems } from '../support/prepared-statements.ts';
import { startSandbox } from '../support/sandbox.ts';
import { findStatements } from '../support/sql-statements.ts';
import { PostgresRelease } from './postgres-release.ts';

const ROOT = resolve(import.meta.dirname, '../..');
/** Versions of the npm package. Postgres 16 lies between two that are tested. */
const TOO_OLD = '14.23.0-beta.17';
const SUPPORTED = ['15.18.0-beta.17', '17.10.0-beta.17'];

test('the tested releases begin with the oldest supported one', () => {
  const majors = SUPPORTED.map((version) => Number.parseInt(version, 10));
  expect(majors[0]).toBe(POSTGRES_MAJOR_MIN);
  expect(Number.parseInt(TOO_OLD, 10)).toBe(POSTGRES_MAJOR_MIN - 1);
});

describe.each(SUPPORTED)('Postgres %s', (version) => {
  test('holds a mirror: two nights are complete, and every statement can be prepared', async (context) => {
    await using release = await PostgresRelease.start(version);
    if (release === undefined) return context.skip();
    await using stack = new AsyncDisposableStack();
    const sandbox = await startSandbox({
      parties: 3,
      entriesMean: 20,
      rateLimit: 'none',
    });
    stack.defer(() => sandbox.stop());
    await using home = await openHome({
      SOURCE_URL: sandbox.url,
      DATABASE_URL: release.url,
    });

    expect(await home.run(['migrate'])).toMatchObject({ code: 0 });
    const complete = { code: 0, document: { verdict: 'complete' } };
    expect(await home.json(['nightly'])).toMatchObject(complete);
    expect(await home.json(['nightly'])).toMatchObject(complete);
    expect(await home.run(['verify', '--deep'])).toMatchObject({ code: 0 });
    const doctor = await home.run(['doctor']);
    expect(doctor.stdout).toContain(`Postgres ${version.split('.', 1)[0]}`);
    expect(doctor.code).toBe(0);
    expect(await findAllProblems(release.url)).toEqual([]);
    return undefined;
  });
});

test('an older Postgres is refused in one line, before anything is created', async (context) => {
  await using release = await PostgresRelease.start(TOO_OLD);
  if (release === undefined) return context.skip();
  await using home = await openHome({
    SOURCE_URL: 'http://127.0.0.1:1',
    DATABASE_URL: release.url,
  });
  for (const command of ['migrate', 'nightly', 'status', 'up']) {
    const { code, stderr } = await home.run([command]);
    expect(stderr).toContain(
      'the server is Postgres 14.23; 15 or later is needed',
    );
    expect({ code, lines: stderr.trim().split('\n').length, command }).toEqual({
      code: 1,
      lines: 1,
      command,
    });
  }
  await using client = await connect(release.url);
  const { rows } = await client.query(
    "select to_regnamespace('mirror') is null as untouched",
  );
  expect(rows).toEqual([{ untouched: true }]);
  return undefined;
});

/** @returns the problems of every statement that the sources declare */
async function findAllProblems(url: string): Promise<string[]> {
  await using client = await connect(url);
  const problems: string[] = [];
  for (const found of findStatements(ROOT, ['src/**/*.ts', 'jobs/**/*.ts']))
    problems.push(...(await findProblems(client, found)));
  return problems;
}

async function connect(url: string): Promise<Client & AsyncDisposable> {
  const client = new Client({ connectionString: url });
  await client.connect();
  return Object.assign(client, {
    [Symbol.asyncDispose]: () => client.end(),
  });
}
