/** What a user reads who asks for help, or mistypes a command that has others below it. */
import { Writable } from 'node:stream';
import { expect, test } from 'vitest';
import { runCli } from '../../src/cli/program.ts';

async function typed(
  ...argv: readonly string[]
): Promise<{ code: number; stdout: string; stderr: string }> {
  const told = { stdout: '', stderr: '' };
  const collect = (name: keyof typeof told): Writable =>
    new Writable({
      write: (chunk: Buffer, _encoding, done) => {
        told[name] += chunk.toString();
        done();
      },
    });
  const code = await runCli({
    argv,
    env: {},
    cwd: '/nonexistent',
    stdout: collect('stdout'),
    stderr: collect('stderr'),
    signal: new AbortController().signal,
  });
  return { code, ...told };
}

test('`help` ends in 0, as --help does, even while the exit code is provisional', async () => {
  const before = process.exitCode;
  // main.ts sets 1 until the command has an answer.
  process.exitCode = 1;
  const asked = await typed('help');
  process.exitCode = before;
  expect(asked.code).toBe(0);
  expect(asked.stdout).toContain('Settings (environment');
});

test('no command at all shows the commands without the settings', async () => {
  const { code, stderr } = await typed();
  expect(code).toBe(1);
  expect(stderr).toContain('nightly');
  expect(stderr).toContain("'ledger-mirror --help' also lists the settings");
  expect(stderr).not.toContain('SOURCE_URL');
});

test('a mistyped subcommand is named with the one that was meant', async () => {
  const { code, stderr } = await typed('lake', 'vacum');
  expect(code).toBe(1);
  expect(stderr).toContain(
    "ledger-mirror: lake has no command 'vacum'. Did you mean vacuum?",
  );
  expect((await typed('lake', 'zzz')).stderr).toContain(
    "ledger-mirror: lake has no command 'zzz'. It has vacuum and restore.",
  );
});

test('a command without subcommands still refuses an argument too many', async () => {
  expect((await typed('status', 'x')).stderr).toContain('too many arguments');
});
