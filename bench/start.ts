/**
 * Measures how long a command takes to its first answer: `npm run bench -- start
 * [--quick]`. Each command runs through `bin/ledger-mirror.js`, as users run it, with
 * warm files and an external Postgres; the commands take turns. It fails if one exceeds
 * its limit. Processor time is shown next to wall time, because on a busy machine it is
 * the only reliable figure.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { atMost, sayLoad, sayNumber } from './world/report.ts';
import { median, openScratchWarehouse } from './world/scratch-world.ts';

const ROUNDS = process.argv.includes('--quick') ? 5 : 15;
const PROGRAM = fileURLToPath(
  new URL('../bin/ledger-mirror.js', import.meta.url),
);

/** Each command, and its limit of wall time in milliseconds. */
const COMMANDS = [
  ['--version', 80],
  ['--help', 80],
  ['config', 250],
  ['status', 250],
  ['runs', 250],
] as const;

interface Run {
  readonly wallMs: number;
  readonly cpuMs: number;
}

await using stack = new AsyncDisposableStack();
const { folder, connectionString } = await openScratchWarehouse(stack);
const env = {
  ...process.env,
  SOURCE_URL: 'http://127.0.0.1:9',
  DATABASE_URL: connectionString,
  DATA_DIR: join(folder, 'mirror'),
  OBJECT_STORE_URL: `file://${join(folder, 'objects')}`,
};

/** @throws Error if the command prints nothing */
async function run(command: string): Promise<Run> {
  const child = spawn(
    'bash',
    [
      '-c',
      'TIMEFORMAT="%R %U %S"; time "$@"',
      'bash',
      process.execPath,
      PROGRAM,
      command,
    ],
    { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] },
  );
  const closed = once(child, 'close');
  const [answer, times] = await Promise.all([
    child.stdout.setEncoding('utf8').toArray(),
    child.stderr.setEncoding('utf8').toArray(),
  ]);
  await closed;
  if (answer.length === 0)
    throw new Error(`${command} gave no answer: ${times.join('')}`);
  const line = times.join('').trim().split('\n').at(-1) ?? '';
  const [wall = 0, user = 0, system = 0] = line.split(' ').map(Number);
  return { wallMs: wall * 1000, cpuMs: (user + system) * 1000 };
}

sayLoad('before');
const runs = new Map<string, Run[]>(COMMANDS.map(([command]) => [command, []]));
// The first run fills the compile cache.
for (const [command] of COMMANDS) await run(command);
for (let round = 0; round < ROUNDS; round += 1)
  for (const [command] of COMMANDS) runs.get(command)?.push(await run(command));
for (const [command, wallMsMax] of COMMANDS) {
  const taken = runs.get(command) ?? [];
  const wallMs = median(taken.map((one) => one.wallMs));
  const cpuMs = median(taken.map((one) => one.cpuMs));
  sayNumber(
    `\`${command}\`: wall; processor time`,
    wallMs,
    `${wallMs.toFixed(0)} ms; ${cpuMs.toFixed(0)} ms`,
    atMost(wallMsMax, ' ms'),
  );
}
sayLoad('after');
