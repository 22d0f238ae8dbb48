/**
 * A source, or a gateway before it, that repeats the credential it was sent: nothing may
 * keep it or tell it.
 */
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openHome, type MirrorHome } from '../cli/mirror-home.ts';
import { freshDatabase } from '../support/database.ts';

const SECRET = 'SRC-S3cret-9988';
const FORMS = [
  SECRET,
  encodeURIComponent(SECRET),
  Buffer.from(SECRET).toString('base64').slice(0, 18),
];

/**
 * Answers 401 with the header that it was sent, in every way that servers have of
 * repeating it.
 */
const server = createServer((request, response) => {
  const sent = request.headers.authorization ?? '';
  const bare = sent.replace(/^Bearer /, '');
  const message = `invalid header Authorization: ${sent}, that is ${bare} or ${btoa(bare)}`;
  const body = {
    code: 16,
    message,
    details: [{ '@type': 'x', code: 1, message: bare, inner: sent }],
  };
  response
    .writeHead(401, { 'content-type': 'application/json', 'x-echo': sent })
    .end(JSON.stringify(body));
});

const database = await freshDatabase();
let home: MirrorHome;

beforeAll(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  home = await openHome({
    SOURCE_URL: `http://127.0.0.1:${port}`,
    SOURCE_AUTHORIZATION: `Bearer ${SECRET}`,
    DATABASE_URL: database.url,
    LOG_LEVEL: 'trace',
  });
});

afterAll(async () => {
  await home[Symbol.asyncDispose]();
  server.close();
});

function expectSilent(text: string): void {
  for (const form of FORMS) expect(text).not.toContain(form);
}

describe('a credential that the source repeats', () => {
  test('is in no output and no log line of the commands that meet it', async () => {
    const synced = await home.json(['sync', 'parties']);
    expect(synced.code).toBe(2);
    expect(synced.stdout).toContain('[secret]');
    expectSilent(synced.stdout + synced.stderr);
    for (const args of [
      ['sync', 'parties'],
      ['runs', '--json'],
      ['doctor'],
      ['doctor', '--json'],
      ['status'],
    ]) {
      const { stdout, stderr } = await home.run(args);
      expect(stdout.length + stderr.length).toBeGreaterThan(0);
      expectSilent(stdout + stderr);
    }
  });

  test('is in no row of the database, which the API and NOTIFY_URL tell from', async () => {
    const { rows } = await database.pool.query<{ row: string }>(
      'select row_to_json(r)::text as row from mirror.runs r',
    );
    expect(rows.map(({ row }) => row).join()).toContain('[secret]');
    const tables = await database.pool.query<{ name: string }>(
      `select quote_ident(table_schema) || '.' || quote_ident(table_name) as name
       from information_schema.tables where table_schema in ('mirror', 'bullmq') and table_type = 'BASE TABLE'`,
    );
    expect(tables.rows.length).toBeGreaterThan(10);
    for (const { name } of tables.rows) {
      const all = await database.pool.query<{ row: string }>(
        `select row_to_json(t)::text as row from ${name} t`,
      );
      expectSilent(all.rows.map(({ row }) => row).join());
    }
  });
});
