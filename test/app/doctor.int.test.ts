/** What `doctor` finds where something is missing: it must say what, and what to do. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { runChecks, type Finding } from '../../src/app/doctor.ts';
import { readConfig } from '../../src/config/environment.ts';
import { createLog } from '../../src/logging/log.ts';
import { nowMicros } from '../../src/time/time.ts';
import { startSandbox } from '../support/sandbox.ts';
import { openFreshDatabase } from '../support/database.ts';

const dir = await mkdtemp(join(tmpdir(), 'ledger-mirror doctor '));
afterAll(() => rm(dir, { recursive: true, force: true }));

async function findings(
  env: Readonly<Record<string, string>>,
): Promise<ReadonlyMap<string, Finding>> {
  const config = readConfig({
    env: { DATA_DIR: join(dir, 'data'), ...env },
    cwd: dir,
  });
  const signal = new AbortController().signal;
  const found = await runChecks({ config, log: createLog('silent'), signal });
  return new Map(found.map((finding) => [finding.what, finding]));
}

test('doctor finds no problem with a source whose blocks are recent', async () => {
  await using database = await openFreshDatabase();
  await using sandbox = await startSandbox({
    parties: 3,
    genesis: (nowMicros() / 1_000_000n - 604_800n) * 1_000_000n,
  });
  const found = await findings({
    DATABASE_URL: database.url,
    SOURCE_URL: sandbox.url,
  });
  expect([...found.values()].filter(({ state }) => state !== 'ok')).toEqual([]);
  expect(found.get('object store')?.detail).toMatch(
    /objects are written once, even by concurrent writers$/,
  );
  expect(found.get('schedule')).toMatchObject({
    state: 'ok',
    detail: expect.stringMatching(
      /^nightly runs: (?:\w{3} \d{4}-\d\d-\d\d \d\d:\d\d(?:, )?){3} \(UTC\)$/,
    ) as string,
  });
  expect(found.get('clock')?.detail).toMatch(
    /^agrees with the database's, the source's and the object store's to within \d s$/,
  );
});

test('doctor reports a source that refuses connections once, with its cause, beside the parts that are well', async () => {
  await using database = await openFreshDatabase();
  const found = await findings({
    DATABASE_URL: database.url,
    SOURCE_URL: 'http://127.0.0.1:9/',
  });
  expect(found.get('source')).toMatchObject({
    state: 'wrong',
    detail: expect.stringMatching(
      /ECONNREFUSED 127\.0\.0\.1:9; check SOURCE_URL/,
    ) as string,
  });
  const others = ['database', 'object store', 'clock'].map(
    (what) => found.get(what)?.state,
  );
  expect(others).toEqual(['ok', 'ok', 'ok']);
});

test("doctor compares this machine's clock with the date of the source's answers", async () => {
  await using database = await openFreshDatabase();
  await using sandbox = await startSandbox({
    parties: 3,
    genesis: (nowMicros() / 1_000_000n - 604_800n) * 1_000_000n,
  });
  const answerLate = async (path: string, response: ServerResponse) => {
    const answer = await fetch(new URL(path, sandbox.url));
    const headers = Object.fromEntries(answer.headers);
    delete headers['content-encoding'];
    delete headers['content-length'];
    const date = new Date(Date.now() - 300_000).toUTCString();
    response.writeHead(answer.status, { ...headers, date });
    response.end(await answer.text());
  };
  const slow = createServer((request, response) => {
    void answerLate(request.url ?? '/', response);
  });
  await once(slow.listen(0, '127.0.0.1'), 'listening');
  const { port } = slow.address() as AddressInfo;
  const found = await findings({
    DATABASE_URL: database.url,
    SOURCE_URL: `http://127.0.0.1:${port}/`,
    // A store belongs to one database.
    DATA_DIR: join(dir, 'data of the slow clock'),
  });
  slow.close();
  expect(found.get('clock')).toMatchObject({
    state: 'warning',
    detail: expect.stringMatching(
      /^the source's clock is 30\d s behind this machine's, which agrees with the database's and the object store's/,
    ),
  });
});

test('doctor reports a source whose blocks are old', async () => {
  await using database = await openFreshDatabase();
  await using sandbox = await startSandbox({ parties: 3 });
  const found = await findings({
    DATABASE_URL: database.url,
    SOURCE_URL: sandbox.url,
  });
  expect(found.get('clock')).toMatchObject({
    state: 'warning',
    detail: expect.stringMatching(/last block is \d+ s old/),
  });
});

test('doctor tells a database user without the right to create what to grant', async () => {
  await using database = await openFreshDatabase();
  const role = `test_${randomBytes(6).toString('hex')}`;
  await database.pool.query(
    `create role ${role} login password 'test' in role pg_read_all_data`,
  );
  try {
    const url = new URL(database.url);
    url.username = role;
    url.password = 'test';
    const found = await findings({ DATABASE_URL: url.href });
    expect(found.get('database and queues')).toMatchObject({
      state: 'wrong',
      detail: expect.stringContaining(
        `grant create on database "${url.pathname.slice(1)}" to "${role}"`,
      ),
    });
  } finally {
    await database.pool.query(`drop owned by ${role}; drop role ${role}`);
  }
});

test('doctor names a service that is away with its setting, without waiting for it', async () => {
  await using database = await openFreshDatabase();
  const noDatabase = await findings({
    DATABASE_URL: 'postgres://someone:hidden@127.0.0.1:1/mirror',
  });
  expect(noDatabase.get('database and queues')).toMatchObject({
    state: 'wrong',
    detail: expect.stringMatching(
      /^Cannot reach the database at 127\.0\.0\.1:1: connect ECONNREFUSED 127\.0\.0\.1:1; check DATABASE_URL/,
    ),
  });
  const noRedis = await findings({
    DATABASE_URL: database.url,
    REDIS_URL: 'redis://127.0.0.1:1',
  });
  expect(noRedis.get('database and queues')?.detail).toMatch(
    /^Cannot reach Redis at 127\.0\.0\.1:1: ECONNREFUSED; check REDIS_URL/,
  );
  const endpoint = encodeURIComponent('http://127.0.0.1:1');
  const noStore = await findings({
    DATABASE_URL: database.url,
    OBJECT_STORE_URL: `s3://bucket?region=us-east-1&endpoint=${endpoint}`,
    AWS_ACCESS_KEY_ID: 'test',
    AWS_SECRET_ACCESS_KEY: 'test',
  });
  expect(noStore.get('object store')?.detail).toMatch(
    /ECONNREFUSED.*cannot be reached; check its endpoint/,
  );
});

test('doctor reports a read-only database in one line', async () => {
  await using database = await openFreshDatabase();
  const { rows } = await database.pool.query<{ name: string }>(
    'select current_database() as name',
  );
  await database.pool.query(
    `alter database "${rows[0]?.name}" set default_transaction_read_only = on`,
  );
  const found = await findings({ DATABASE_URL: database.url });
  expect(found.get('database and queues')).toMatchObject({
    state: 'wrong',
    detail: expect.stringMatching(/^Cannot [^\n]*read-only transaction[^\n]*$/),
  });
});
