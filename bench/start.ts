/**
 * Measures how long users wait for a first answer: `npm run bench -- start [--quick]
 * [commands] [query] [serving]`. Each command runs through `bin/ledger-mirror.js`, as
 * users run it, with warm files and an external Postgres, alternately from the checkout
 * and from a package as npm installs it. Then come a ready question, the console's first
 * question to a process that has just started serving, and the first status of a large
 * mirror. The benchmark fails if any of these exceeds its limit. Processor time is shown
 * next to wall time, because on a busy machine it is the only reliable figure.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdir, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { Pool } from 'pg';
import { buildDist } from '../scripts/build-dist.ts';
import { ROOT } from '../scripts/steps.ts';
import { fillMirror } from '../test/support/measure/large-mirror.ts';
import {
  openHome,
  runCommand,
  startScript,
  startServing,
} from './world/api-world.ts';
import { atMost, sayLoad, sayNumber } from './world/report.ts';
import { median, openScratchWarehouse } from './world/scratch-world.ts';

const isQuick = process.argv.includes('--quick');
const chosen = process.argv.slice(2).filter((word) => !word.startsWith('--'));
const ROUNDS = isQuick ? 5 : 15;
const SERVED_ROUNDS = isQuick ? 3 : 5;
const PARTIES = 20;
const WHALE_ENTRIES = 50_000;
const MANY_PARTIES = 100_000;
const QUESTION = 'daily-flows';

/** Each command, and its limit in milliseconds of wall time. */
const COMMANDS = [
  ['--version', 80],
  ['--help', 80],
  ['config', 250],
  ['status', 250],
  ['runs', 250],
] as const;
const QUERY_MS_MAX = 450;
const FIRST_QUESTION_MS_MAX = 600;
const NEXT_QUESTION_MS_MAX = 100;
const STATUS_MS_MAX = 200;

interface Run {
  readonly wallMs: number;
  readonly cpuMs: number;
}

type Env = Readonly<Record<string, string | undefined>>;

await using stack = new AsyncDisposableStack();
const { folder, connectionString } = await openScratchWarehouse(stack);
const CHECKOUT = join(ROOT, 'bin', 'ledger-mirror.js');
const programs = { checkout: CHECKOUT, package: await installPackage() };

/** Lays a package out as npm does, with the libraries of this checkout. */
async function installPackage(): Promise<string> {
  const installed = join(folder, 'node_modules', 'ledger-mirror');
  await mkdir(installed, { recursive: true });
  await buildDist(join(installed, 'dist'));
  for (const path of ['bin', 'package.json'])
    await cp(join(ROOT, path), join(installed, path), { recursive: true });
  await symlink(join(ROOT, 'node_modules'), join(installed, 'node_modules'));
  return join(installed, 'bin', 'ledger-mirror.js');
}

/** @throws Error if the command prints nothing */
async function run(
  program: string,
  args: readonly string[],
  env: Env,
): Promise<Run> {
  const child = spawn(
    'bash',
    [
      '-c',
      'TIMEFORMAT="%R %U %S"; time "$@"',
      'bash',
      process.execPath,
      program,
      ...args,
    ],
    {
      cwd: folder,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  const closed = once(child, 'close');
  const [answer, times] = await Promise.all([
    child.stdout.setEncoding('utf8').toArray(),
    child.stderr.setEncoding('utf8').toArray(),
  ]);
  await closed;
  if (answer.length === 0 || child.exitCode !== 0)
    throw new Error(`${args.join(' ')} gave no answer: ${times.join('')}`);
  const line = times.join('').trim().split('\n').at(-1) ?? '';
  const [wall = 0, user = 0, system = 0] = line.split(' ').map(Number);
  return { wallMs: wall * 1000, cpuMs: (user + system) * 1000 };
}

function sayRuns(what: string, runs: readonly Run[], wallMsMax: number): void {
  const wallMs = median(runs.map((one) => one.wallMs));
  const cpuMs = median(runs.map((one) => one.cpuMs));
  sayNumber(
    `${what}: wall; processor time`,
    wallMs,
    `${wallMs.toFixed(0)} ms; ${cpuMs.toFixed(0)} ms`,
    atMost(wallMsMax, ' ms'),
  );
}

function sayTime(what: string, times: readonly number[], msMax: number): void {
  const wallMs = median(times);
  const all = times.map((ms) => ms.toFixed(0)).join(', ');
  sayNumber(
    what,
    wallMs,
    `${wallMs.toFixed(0)} ms (${all})`,
    atMost(msMax, ' ms'),
  );
}

async function benchCommands(): Promise<void> {
  const env = {
    SOURCE_URL: 'http://127.0.0.1:9',
    DATABASE_URL: connectionString,
    DATA_DIR: join(folder, 'mirror'),
    OBJECT_STORE_URL: `file://${join(folder, 'objects')}`,
    XDG_CACHE_HOME: join(folder, 'cache'),
  };
  const cases = COMMANDS.flatMap(([command, wallMsMax]) =>
    Object.entries(programs).map(([name, program]) => ({
      name: `\`${command}\`, ${name}`,
      command,
      program,
      wallMsMax,
      runs: [] as Run[],
    })),
  );
  // The first run fills the compile cache.
  for (const { command, program } of cases) await run(program, [command], env);
  for (let round = 0; round < ROUNDS; round += 1)
    for (const { command, program, runs } of cases)
      runs.push(await run(program, [command], env));
  for (const { name, runs, wallMsMax } of cases) sayRuns(name, runs, wallMsMax);
}

/**
 * Measures a ready question on a mirror with a lake: by the command, and by the console
 * of a process that has just started serving.
 */
async function benchQuery(): Promise<void> {
  const home = await openHome(connectionString, folder, 'bench_start');
  {
    await using sandbox = await startScript('serve-sandbox.ts', [
      `${PARTIES}`,
      '0',
      `${WHALE_ENTRIES}`,
    ]);
    const source = { SOURCE_URL: sandbox.url, SOURCE_RATE: '100000' };
    await runCommand(['nightly'], { ...home.env, ...source });
  }
  const env = { ...home.env, XDG_CACHE_HOME: join(folder, 'cache') };
  for (const [name, program] of Object.entries(programs)) {
    const runs: Run[] = [];
    await run(program, ['query', QUESTION], env);
    for (let round = 0; round < ROUNDS; round += 1)
      runs.push(await run(program, ['query', QUESTION], env));
    sayRuns(`\`query ${QUESTION}\`, ${name}`, runs, QUERY_MS_MAX);
  }
  const firsts: number[] = [];
  const laterOnes: number[] = [];
  for (let round = 0; round < SERVED_ROUNDS; round += 1) {
    await using mirror = await startServing('serve', home.env, CHECKOUT);
    firsts.push(await timeQuestion(mirror.url));
    const later: number[] = [];
    for (let again = 0; again < ROUNDS; again += 1)
      later.push(await timeQuestion(mirror.url));
    laterOnes.push(median(later));
  }
  const what = "of a process that has just begun to serve: the console's";
  sayTime(`${what} first question`, firsts, FIRST_QUESTION_MS_MAX);
  sayTime(`${what} next ones`, laterOnes, NEXT_QUESTION_MS_MAX);
}

async function timeQuestion(url: string): Promise<number> {
  const startMs = performance.now();
  const response = await fetch(`${url}/console/query`, {
    method: 'POST',
    body: JSON.stringify({ question: QUESTION }),
    headers: { 'content-type': 'application/json' },
  });
  const text = await response.text();
  if (response.status !== 200)
    throw new Error(`the question was answered ${response.status}: ${text}`);
  return performance.now() - startMs;
}

/**
 * Measures the status of a mirror of 100,000 parties, in a process that has never read it
 * before.
 */
async function benchServing(): Promise<void> {
  const home = await openHome(connectionString, folder, 'bench_large');
  await runCommand(['migrate'], home.env);
  const pool = new Pool({ connectionString: home.databaseUrl });
  // An idle connection fails when the server ends; that is not an error here.
  pool.on('error', () => undefined);
  await fillMirror(pool, { parties: MANY_PARTIES, entries: MANY_PARTIES });
  await pool.query('checkpoint');
  await pool.end();
  const firsts: number[] = [];
  const laterOnes: number[] = [];
  for (let round = 0; round < SERVED_ROUNDS; round += 1) {
    await using mirror = await startServing('serve', home.env, CHECKOUT);
    const read = async (): Promise<number> => {
      const startMs = performance.now();
      const response = await fetch(`${mirror.url}/mirror/status`);
      await response.arrayBuffer();
      if (response.status !== 200)
        throw new Error(`the status was answered ${response.status}`);
      return performance.now() - startMs;
    };
    firsts.push(await read());
    laterOnes.push(await read());
  }
  const what = `/mirror/status of ${MANY_PARTIES} parties`;
  sayTime(`${what}, the first one`, firsts, STATUS_MS_MAX);
  sayTime(`${what}, the next one`, laterOnes, STATUS_MS_MAX);
}

const SECTIONS = {
  commands: benchCommands,
  query: benchQuery,
  serving: benchServing,
};
sayLoad('before');
for (const [name, bench] of Object.entries(SECTIONS))
  if (chosen.length === 0 || chosen.includes(name)) await bench();
sayLoad('after');
