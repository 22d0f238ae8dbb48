/**
 * `demo` as a newcomer runs it, twice, where the path has a space; and what takes a
 * minute: exit codes.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { Client } from 'pg';
import { describe, expect, test } from 'vitest';
import { startSandbox } from '../../support/sandbox.ts';
import { openHome } from '../mirror-home.ts';

/** Seconds on cores of its own. */
const DEMO_MS_MAX = 240_000;
/** It includes the time that a busy machine needs to start a database. */
const ABOUT_A_MINUTE_MS = 120_000;

describe('the command demo', () => {
  test('ends in 0 twice in a row and does not disturb a real run in the same DATA_DIR', async () => {
    await using sandbox = await startSandbox({
      parties: 20,
      rateLimit: 'none',
    });
    // Neither Postgres nor Redis are configured: everything is embedded.
    await using home = await openHome({ SOURCE_URL: sandbox.url });
    expect(home.dataDir).toContain(' ');
    const real = await home.json(['nightly']);
    expect([real.code, real.document.verdict]).toEqual([0, 'complete']);
    const before = sandbox.requests.of();

    const first = await home.run(['demo']);
    expect(first.code, `${first.stdout}${first.stderr}`).toBe(0);
    expect(first.stdout).toMatch(/Done: verdict complete/);
    const second = await home.json(['demo']);
    expect([second.code, second.document.verdict]).toEqual([0, 'complete']);
    expect(Object.keys(second.document['answers'] as object)).toHaveLength(3);

    expect(sandbox.requests.of()).toBe(before);
    const listed = (await home.json(['runs'])).document as unknown as {
      subject: string;
    }[];
    expect(listed.some(({ subject }) => subject === 'demo')).toBe(false);
    expect((await home.json(['verify', '--deep'])).code).toBe(0);
    expect((await home.json(['nightly'])).code).toBe(0);
  });
});

describe('the command demo --keep', () => {
  test('keeps the console open over a complete mirror until it is stopped, then ends in 0', async () => {
    await using home = await openHome({ API_PORT: '0' });
    const demo = home.start(['demo', '--keep']);
    const [, url = ''] = await demo.waitForLine(
      /The console is open at (http\S+)/,
      DEMO_MS_MAX,
    );
    const status = async (): Promise<unknown> =>
      (await fetch(`${url}/mirror/status`)).json();
    await expect
      .poll(status)
      .toMatchObject({ whole: true, attention: [], work: { workers: 1 } });
    expect((await fetch(url)).headers.get('content-type')).toContain(
      'text/html',
    );
    const [, file = '', host, port, user, database] =
      /cat '(.*)'\)" psql --host=(\S+) --port=(\d+) --username=(\S+) (\S+)/.exec(
        demo.stdout,
      ) ?? [];
    const password = await readFile(join(home.dir, file), 'utf8');
    const client = new Client({
      host,
      port: Number(port),
      user,
      database,
      password,
    });
    await client.connect();
    const { rowCount } = await client.query(
      'select from mirror.parties where party_id <> $1',
      ['network'],
    );
    await client.end();
    expect(rowCount).toBeGreaterThanOrEqual(150);
    expect(await demo.end('SIGTERM')).toEqual({ code: 0, signal: null });
    await expect(fetch(url)).rejects.toThrow('fetch failed');
  });

  test('refuses a port that is in use before it begins, and says what to set', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    await using home = await openHome({ API_PORT: String(port) });
    const { code, stdout, stderr } = await home.run(['demo', '--keep']);
    other.close();
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(
      /Cannot listen on \S+: another program uses the port; set API_PORT to another/,
    );
  });
});

describe('a command with a source that cannot be used', () => {
  test.concurrent.each([
    ['sync all', ['sync', 'all']],
    ['nightly', ['nightly']],
  ])(
    'ends in 75 after about a minute where the source refuses connections: %s',
    async (_, command) => {
      const closed = createServer().listen(0, '127.0.0.1');
      await once(closed, 'listening');
      const { port } = closed.address() as AddressInfo;
      closed.close();
      await using home = await openHome({
        SOURCE_URL: `http://127.0.0.1:${port}`,
      });
      const child = home.start([...command, '--json']);
      expect(await child.end(undefined, ABOUT_A_MINUTE_MS)).toEqual({
        code: 75,
        signal: null,
      });
      expect(JSON.parse(child.stdout)).toMatchObject({ verdict: 'failed' });
    },
  );

  test.concurrent('ends in 2 with a verdict where the answers cannot be read', async () => {
    const broken = createServer((_, response) => response.end('<html>')).listen(
      0,
      '127.0.0.1',
    );
    await once(broken, 'listening');
    try {
      const { port } = broken.address() as AddressInfo;
      await using home = await openHome({
        SOURCE_URL: `http://127.0.0.1:${port}`,
      });
      const child = home.start(['sync', 'parties', '--json']);
      expect(await child.end(undefined, 240_000)).toEqual({
        code: 2,
        signal: null,
      });
      expect(JSON.parse(child.stdout)).toMatchObject({
        verdict: 'incomplete',
        evidence: { error: { code: 'ANSWER_NOT_UNDERSTOOD' } },
      });
    } finally {
      broken.close();
      broken.closeAllConnections();
    }
  });
});
