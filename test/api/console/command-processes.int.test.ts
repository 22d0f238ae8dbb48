/**
 * Processes that answer one request after another: which of them are kept, and what ends
 * them.
 */
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import {
  type CommandProcesses,
  type CommandProcessesOptions,
  openCommandProcesses,
} from '../../../src/api/console/command-processes.ts';
import { isProcessAlive } from '../../support/process.ts';
import { waitFor } from '../../support/wait-for.ts';

const { signal } = new AbortController();

/**
 * Answers with its process id, after it has left a file of that name in its folder. The
 * first argument of a request names what it does besides.
 */
const SCRIPT = `
  const { writeFileSync } = require('node:fs');
  writeFileSync(process.argv[1] + '/' + process.pid, '');
  const reply = { code: 0, output: String(process.pid), errors: '', isCut: false, residentBytes: 1 };
  const habits = {
    answer: () => process.send(reply),
    fail: () => process.send({ ...reply, code: 1 }),
    grow: () => process.send({ ...reply, residentBytes: 2 ** 30 }),
    crash: () => { console.error('out of memory'); process.exit(3); },
    hang: () => undefined,
    resist: () => { process.on('SIGTERM', () => undefined); process.send(reply); },
  };
  process.on('message', ({ args }) => habits[args[0]]());
`;

type Habit = 'answer' | 'fail' | 'grow' | 'crash' | 'hang' | 'resist';

interface World extends AsyncDisposable {
  readonly processes: CommandProcesses;
  /** Returns the id of the process that answered. */
  ask(habit: Habit, given?: AbortSignal): Promise<number>;
  /** Returns the ids of all processes that were ever started. */
  started(): Promise<readonly number[]>;
}

async function openWorld(
  options: Partial<CommandProcessesOptions> = {},
): Promise<World> {
  const folder = await mkdtemp(join(tmpdir(), 'processes-'));
  const processes = openCommandProcesses({
    command: [process.execPath, '-e', SCRIPT, folder],
    env: {},
    timeoutMs: 60_000,
    ...options,
  });
  return {
    processes,
    ask: async (habit, given = signal) => {
      const { output } = await processes.run({ args: [habit] }, given);
      return Number(output);
    },
    started: async () => (await readdir(folder)).map(Number),
    [Symbol.asyncDispose]: async () => {
      await processes[Symbol.asyncDispose]();
      await rm(folder, { recursive: true });
    },
  };
}

async function untilGone(pid: number): Promise<void> {
  await waitFor(async () => !(await isProcessAlive(pid)), {
    what: `process ${pid} is gone`,
  });
}

test('one process answers requests that follow each other', async () => {
  await using world = await openWorld();
  const first = await world.ask('answer');
  expect(await world.ask('answer')).toBe(first);
  expect(await world.started()).toEqual([first]);
});

test('requests at the same time have processes of their own, of which one is kept', async () => {
  await using world = await openWorld();
  const pids = await Promise.all([world.ask('answer'), world.ask('answer')]);
  expect(new Set(pids).size).toBe(2);
  const kept = await world.ask('answer');
  expect(pids).toContain(kept);
  await untilGone(pids.find((pid) => pid !== kept) ?? 0);
});

test.each(['fail', 'grow'] as const)(
  'a process is not kept that answers: %s; another one was started ahead',
  async (habit) => {
    await using world = await openWorld();
    const first = await world.ask(habit);
    await untilGone(first);
    const pids = await waitFor(
      async () => {
        const all = await world.started();
        return all.length === 2 && all;
      },
      { what: 'a second process' },
    );
    const second = await world.ask('answer');
    expect(pids).toContain(second);
    expect(second).not.toBe(first);
  },
);

test('a process that crashes fails its own request, with what it wrote, and no other', async () => {
  await using world = await openWorld();
  const first = await world.ask('answer');
  await expect(world.ask('crash')).rejects.toThrow('out of memory');
  expect(await world.ask('answer')).not.toBe(first);
});

test('a process that was killed while it was idle fails no request', async () => {
  await using world = await openWorld();
  const first = await world.ask('answer');
  process.kill(first, 'SIGKILL');
  expect(await world.ask('answer')).not.toBe(first);
});

test('a cancelled request has ended its process when it returns', async () => {
  await using world = await openWorld();
  const first = await world.ask('answer');
  const gone = new AbortController();
  const asked = world.ask('hang', gone.signal);
  gone.abort();
  await expect(asked).rejects.toThrow('ended without an answer');
  expect(await isProcessAlive(first)).toBe(false);
  expect(await world.ask('answer')).not.toBe(first);
});

test('a request that takes too long ends its process', async () => {
  await using world = await openWorld({ timeoutMs: 1 });
  await expect(world.ask('hang')).rejects.toThrow('ended without an answer');
});

test('a process that ignores its end is killed', async () => {
  await using world = await openWorld({ graceMs: 1 });
  const first = await world.ask('resist');
  const gone = new AbortController();
  const asked = world.ask('hang', gone.signal);
  gone.abort();
  await expect(asked).rejects.toThrow('ended without an answer');
  expect(await isProcessAlive(first)).toBe(false);
});

test('an idle process ends after a while', async () => {
  await using world = await openWorld({ idleMs: 1 });
  const pid = await world.ask('answer');
  await untilGone(pid);
  expect(await world.ask('answer')).not.toBe(pid);
});

test('closing ends the idle process and the running ones, and starts no more', async () => {
  await using world = await openWorld();
  const first = await world.ask('answer');
  const running = world.ask('hang');
  const other = await world.ask('answer');
  expect(other).not.toBe(first);
  const [ended] = await Promise.allSettled([
    running,
    world.processes[Symbol.asyncDispose](),
  ]);
  expect(ended.status).toBe('rejected');
  expect(await isProcessAlive(first)).toBe(false);
  expect(await isProcessAlive(other)).toBe(false);
  await expect(world.ask('answer')).rejects.toThrow('no more commands');
  expect(await world.started()).toHaveLength(2);
});

test('a program that cannot be started is reported', async () => {
  await using processes = openCommandProcesses({
    command: ['/nowhere/node'],
    env: {},
    timeoutMs: 60_000,
  });
  await expect(processes.run({ args: [] }, signal)).rejects.toThrow('ENOENT');
});
