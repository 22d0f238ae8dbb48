/**
 * What stands on stderr beside the output of a command that only reads, where stderr is
 * not a terminal and the mirror's Postgres is embedded.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startSandbox, type Sandbox } from '../../support/sandbox.ts';
import { openHome, type MirrorHome } from '../mirror-home.ts';

const READY = 'Embedded Postgres ready';
let sandbox: Sandbox;
let home: MirrorHome;
let runId: string;
let nightLog: string;

beforeAll(async () => {
  sandbox = await startSandbox({
    parties: 2,
    entriesMean: 5,
    rateLimit: 'none',
  });
  home = await openHome({ SOURCE_URL: sandbox.url, LOG_LEVEL: undefined });
  const night = await home.json(['nightly']);
  nightLog = night.stderr;
  runId = String(night.document['runId']);
});

afterAll(async () => {
  await home[Symbol.asyncDispose]();
  await sandbox.stop();
});

test.each([
  ['status', []],
  ['runs', []],
  ['runs', ['ID']],
  ['logs', ['ID']],
  ['query', ['select count(*) from entries']],
  ['lake', []],
  ['config', []],
])('%s %j writes no log line', async (command, given) => {
  const ended = await home.run([
    command,
    ...given.map((argument) => argument.replace('ID', runId)),
  ]);
  expect(ended).toMatchObject({ code: 0, stderr: '' });
});

test('a command that does work logs what it does', () => {
  expect(nightLog).toContain(READY);
});

test('a command that only reads logs at the level that LOG_LEVEL sets', async () => {
  const { stderr } = await home.run(['status'], { LOG_LEVEL: 'info' });
  expect(stderr).toContain(READY);
});
