/** What of the server's log is kept while a server fails to start. */
import {
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { logSince, openLog } from '../../src/embedded/server-log.ts';

const READY = 'LOG:  database system is ready to accept connections\n';

let home = '';

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'ledger-mirror-log-'));
});

afterEach(() => rmSync(home, { recursive: true, force: true }));

test('openLog keeps the log of a server that was ready as server.log.old', () => {
  write('server.log', `${READY}PANIC:  first damage\n`);
  expect(openLog(home)).toBe(0);
  expect(readFileSync(join(home, 'server.log.old'), 'utf8')).toContain(
    'first damage',
  );
  expect(existsSync(join(home, 'server.log'))).toBe(false);
});

test('openLog keeps the first log and the first failed start through a hundred more', () => {
  write('server.log.old', `${READY}PANIC:  first damage\n`);
  write('server.log', 'PANIC:  first failed start\n');
  for (let start = 0; start < 100; start += 1) {
    const begin = openLog(home);
    const before = readFileSync(join(home, 'server.log'), 'utf8');
    write(
      'server.log',
      `${before}${'x'.repeat(10_000)}\nPANIC:  start ${start}\n`,
    );
    expect(logSince(home, begin)).toContain(`start ${start}`);
  }
  expect(readFileSync(join(home, 'server.log.old'), 'utf8')).toContain(
    'first damage',
  );
  const log = readFileSync(join(home, 'server.log'), 'utf8');
  expect(log).toContain('first failed start');
  expect(log.length).toBeLessThan(300_000);
});

function write(name: string, text: string): void {
  writeFileSync(join(home, name), text);
}
