/** The tokens of the API, whose files may be replaced at any time. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openApiTokens } from '../../src/app/rotating-secrets.ts';
import { readConfig } from '../../src/config/environment.ts';
import { createLog } from '../../src/logging/log.ts';

const WRITE = 'first-write-token-1';
const READ = 'first-read-token-01';

test('openApiTokens reads the files again once a second has passed', () => {
  const world = openWorld();
  world.write('api-token', 'second-write-token-2');
  expect(world.read()).toEqual({ write: WRITE, read: READ });
  world.pass(1_000);
  expect(world.read()).toEqual({ write: 'second-write-token-2', read: READ });
});

test.each([
  ['is empty, because it is being written', 'api-token', ''],
  ['holds no token', 'api-read-token', 'short'],
  ['holds the other token', 'api-read-token', WRITE],
])('openApiTokens keeps the last tokens if a file %s', (_, name, content) => {
  const world = openWorld();
  const before = world.read();
  world.write(name, content);
  world.pass(1_000);
  expect(world.read()).toBe(before);
});

test('openApiTokens keeps the last tokens if a file is gone', () => {
  const world = openWorld();
  const before = world.read();
  world.remove('api-token');
  world.pass(1_000);
  expect(world.read()).toBe(before);
});

test('openApiTokens warns once while both files hold the same token', () => {
  const world = openWorld();
  world.write('api-read-token', WRITE);
  for (let look = 0; look < 3; look += 1) {
    world.pass(1_000);
    world.read();
  }
  expect(world.warnings).toEqual([
    'API_TOKEN and API_READ_TOKEN are the same; the previous tokens stay in use',
  ]);
});

test('openApiTokens returns nothing if no token is set', () => {
  const config = readConfig({ env: {}, cwd: '/' });
  expect(openApiTokens(config, createLog('silent'))).toBeUndefined();
});

function openWorld() {
  const dir = mkdtempSync(join(tmpdir(), 'lm-tokens-'));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const write = (name: string, content: string): void =>
    writeFileSync(join(dir, name), content);
  write('api-token', WRITE);
  write('api-read-token', READ);
  const env = {
    API_TOKEN_FILE: 'api-token',
    API_READ_TOKEN_FILE: 'api-read-token',
  };
  let nowMs = 0;
  const config = readConfig({ env, cwd: dir });
  const warnings: string[] = [];
  const log = {
    info: () => undefined,
    warn: (...line: readonly unknown[]) => {
      warnings.push(String(line.at(-1)));
    },
  };
  const read = openApiTokens(config, log, () => nowMs);
  if (read === undefined) throw new Error('The tokens are not set');
  return {
    read,
    write,
    warnings,
    remove: (name: string): void => rmSync(join(dir, name)),
    pass: (ms: number): void => {
      nowMs += ms;
    },
  };
}
