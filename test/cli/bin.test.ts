import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import {
  copyFile,
  mkdir,
  mkdtemp,
  readdir,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isProcessAlive, runScript } from '../support/process.ts';

const BIN = resolve(import.meta.dirname, '../../bin/ledger-mirror.js');
/** Stands in for the program: says how it was called, or waits for a signal. */
const MAIN = `
const what: string = process.argv[2] ?? '';
if (what === 'wait') {
  process.on('SIGTERM', () => process.exit(7));
  setInterval(() => {}, 1000);
}
process.stdout.write(JSON.stringify({ pid: process.pid, args: process.argv.slice(2), flags: process.execArgv, arenas: process.env['MALLOC_ARENA_MAX'] }) + '\\n');
process.exitCode = 3;
`;
/** Makes the first process, not the one it starts, believe that it is an old Node. */
const OLD_NODE = `
if (process.env.LEDGER_MIRROR_PARENT === undefined) {
  Object.defineProperty(process.versions, 'node', { value: '20.20.2' });
}
`;
const OTHER_PLATFORM = `Object.defineProperty(process, 'platform', { value: 'win32' });`;

let folder = '';

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ledger mirror bin '));
  for (const checkout of ['bare', 'installed']) {
    await mkdir(join(folder, checkout, 'bin'), { recursive: true });
    await mkdir(join(folder, checkout, 'src'));
    await copyFile(BIN, join(folder, checkout, 'bin/ledger-mirror.js'));
    await writeFile(
      join(folder, checkout, 'package.json'),
      '{"type":"module"}',
    );
    await writeFile(join(folder, checkout, 'src/main.ts'), MAIN);
  }
  const node = join(
    folder,
    'installed/node_modules',
    `node-${process.platform}-${process.arch}`,
    'bin',
  );
  await mkdir(node, { recursive: true });
  await symlink(process.execPath, join(node, 'node'));
  await writeFile(join(folder, 'old-node.cjs'), OLD_NODE);
  await writeFile(join(folder, 'other-platform.cjs'), OTHER_PLATFORM);
});

afterAll(() => rm(folder, { recursive: true, force: true }));

interface Run {
  child: ChildProcess;
  firstLine: Promise<string>;
  ended: Promise<{ code: number | null; stderr: string }>;
}

function run(checkout: string, args: string[], preload?: string): Run {
  const node =
    preload === undefined ? [] : ['--require', join(folder, preload)];
  const child = spawn(
    process.execPath,
    [...node, join(folder, checkout, 'bin/ledger-mirror.js'), ...args],
    {
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  const firstLine = once(createInterface(child.stdout), 'line').then(([line]) =>
    String(line),
  );
  const ended = once(child, 'close').then(([code]) => ({
    code: code as number | null,
    stderr,
  }));
  return { child, firstLine, ended };
}

describe('bin/ledger-mirror.js', () => {
  test.each([
    ['a new Node', undefined],
    ['an old Node, through the one in node_modules', 'old-node.cjs'],
  ])('hands arguments and exit code over on %s', async (_, preload) => {
    const { firstLine, ended } = run('installed', ['runs', '--json'], preload);
    expect(JSON.parse(await firstLine)).toMatchObject({
      args: ['runs', '--json'],
    });
    expect(await ended).toEqual({ code: 3, stderr: '' });
  });

  test('run by its own first line, as npx does, keeps to little memory', async () => {
    const bin = join(folder, 'installed/bin/ledger-mirror.js');
    const child = spawn(bin, ['heap'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [line] = (await once(createInterface(child.stdout), 'line')) as [
      string,
    ];
    expect(JSON.parse(line)).toMatchObject({
      args: ['heap'],
      flags: ['--max-semi-space-size=4'],
      arenas: '2',
    });
  });

  test('compiles no module twice', async () => {
    await run('installed', ['runs']).ended;
    const compiled = await readdir(
      join(folder, 'installed/node_modules/.cache/ledger-mirror'),
    );
    expect(compiled).toHaveLength(1);
  });

  test('ends quietly where nobody reads what it writes', async () => {
    await using child = runScript(BIN, ['--help']);
    child.closeStdout();
    expect(await child.end()).toEqual({ code: 0, signal: null });
    expect(child.stderr).toBe('');
  });

  test('says in one line what to do where only an old Node is there', async () => {
    const { ended } = run('bare', ['demo'], 'old-node.cjs');
    const { code, stderr } = await ended;
    expect(code).toBe(1);
    expect(stderr).toBe(
      "ledger-mirror: Cannot run on Node 20.20.2: Node 24.12 or later is needed; run 'npm ci' in the " +
        'checkout (with optional dependencies), which brings one\n',
    );
  });

  test('refuses other platforms in one line', async () => {
    const { code, stderr } = await run(
      'installed',
      ['demo'],
      'other-platform.cjs',
    ).ended;
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /^ledger-mirror: Cannot run on win32-\w+: supported are .*\n$/,
    );
  });

  test('passes SIGTERM on and ends with the code of the program', async () => {
    const { child, firstLine, ended } = run(
      'installed',
      ['wait'],
      'old-node.cjs',
    );
    await firstLine;
    child.kill('SIGTERM');
    expect(await ended).toEqual({ code: 7, stderr: '' });
  });

  test('leaves no program behind after kill -9', async () => {
    const { child, firstLine } = run('installed', ['wait'], 'old-node.cjs');
    const { pid } = JSON.parse(await firstLine) as { pid: number };
    expect(pid).not.toBe(child.pid);
    child.kill('SIGKILL');
    await expect.poll(() => isProcessAlive(pid)).toBe(false);
  });
});
