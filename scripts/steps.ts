/**
 * Runs the steps of a command that needs more than Node. Each step passes, fails, or
 * reports what is missing to run it. Every step runs, even if an earlier one failed; the
 * last line counts all three outcomes.
 */
import { spawn } from 'node:child_process';
import { resolve } from 'node:path';

export const ROOT = resolve(import.meta.dirname, '..');
const OUTPUT_CHARACTERS_MAX = 4_000_000;
const TIMEOUT_MS = 10 * 60_000;
const SHOWN_LINES = 40;

/** Thrown by a step whose tool is not installed on this machine. */
export class NotRun extends Error {}

export interface Step {
  readonly name: string;
  readonly run: () => Promise<void>;
}

export interface Ended {
  readonly code: number;
  readonly stdout: string;
  /** The output of both streams, in order. */
  readonly output: string;
}

export interface CommandOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly stdin?: string;
  readonly timeoutMs?: number;
}

/**
 * Runs a command to its end. If it cannot be started, its exit code is 127, as in a
 * shell.
 */
export async function command(
  name: string,
  args: readonly string[],
  { cwd = ROOT, env = {}, stdin, timeoutMs = TIMEOUT_MS }: CommandOptions = {},
): Promise<Ended> {
  const child = spawn(name, args, {
    cwd,
    env: { ...process.env, NO_COLOR: '1', FORCE_COLOR: undefined, ...env },
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
  });
  let stdout = '';
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout = (stdout + text).slice(-OUTPUT_CHARACTERS_MAX);
    output = (output + text).slice(-OUTPUT_CHARACTERS_MAX);
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    output = (output + text).slice(-OUTPUT_CHARACTERS_MAX);
  });
  child.stdin.on('error', () => undefined).end(stdin ?? '');
  return new Promise((settle) => {
    child.on('error', (error) =>
      settle({ code: 127, stdout, output: `${name}: ${error.message}` }),
    );
    child.on('close', (code, signal) => {
      const end = signal === null ? '' : `\n${name} was stopped by ${signal}`;
      settle({ code: code ?? 137, stdout, output: output + end });
    });
  });
}

/**
 * Runs a command that has to succeed.
 * @throws Error with the command's output if its exit code is not 0
 */
export async function succeed(
  name: string,
  args: readonly string[],
  options?: CommandOptions,
): Promise<string> {
  const { code, stdout, output } = await command(name, args, options);
  if (code !== 0)
    throw new Error(
      `${name} ${args.join(' ')} ended with exit code ${code}\n${output}`,
    );
  return stdout;
}

/** @throws Error with what was expected */
export function expect(isSo: boolean, otherwise: string): void {
  if (!isSo) throw new Error(otherwise);
}

/** Runs all steps and sets the exit code. */
export async function runSteps(steps: readonly Step[]): Promise<void> {
  const counts = { ok: 0, FAILED: 0, 'not run': 0 };
  for (const step of steps) {
    const startedMs = performance.now();
    let state: keyof typeof counts = 'ok';
    let said = '';
    try {
      await step.run();
    } catch (error) {
      state = error instanceof NotRun ? 'not run' : 'FAILED';
      said = error instanceof Error ? error.message : String(error);
    }
    counts[state] += 1;
    const seconds = ((performance.now() - startedMs) / 1000).toFixed(1);
    process.stdout.write(`${state.padEnd(8)}${step.name}  ${seconds} s\n`);
    if (said !== '') {
      const lines = said.trimEnd().split('\n').slice(-SHOWN_LINES);
      process.stdout.write(
        `${lines.map((line) => `        ${line}`).join('\n')}\n`,
      );
    }
  }
  process.stdout.write(
    `${counts.ok} passed, ${counts.FAILED} failed, ${counts['not run']} not run\n`,
  );
  process.exitCode = counts.FAILED === 0 ? 0 : 1;
}
