/** The input of every command, and the result that it returns. */
import type { Writable } from 'node:stream';
import type { Config } from '../config/environment.ts';
import type { Log } from '../logging/log.ts';
import type { Verdict } from '../errors/verdict.ts';
import { errorIn, describeRun } from '../runs/run-document.ts';
import type { Run } from '../runs/store/run-store.ts';
import type { Progress } from './output/progress.ts';
import { runSummary } from './output/run-text.ts';

export const EXIT = {
  done: 0,
  /** The usage or configuration was wrong, or the program has a bug. */
  wrong: 1,
  /** The command ended with a verdict other than `complete`. */
  verdict: 2,
  /** A service could not be reached, or a waiting command was stopped by a signal. */
  tryAgain: 75,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

export interface CliEnvironment {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  /**
   * Sets an environment variable unless the process already has it. Some libraries can
   * only be configured through the environment.
   */
  readonly setVariable?: (name: string, value: string) => void;
  readonly stdout: Writable & {
    readonly columns?: number;
    readonly isTTY?: boolean;
  };
  readonly stderr: Writable & { readonly isTTY?: boolean };
  /** Aborted by the first SIGTERM or SIGINT. */
  readonly signal: AbortSignal;
}

export interface CommandContext extends Pick<
  CliEnvironment,
  'stdout' | 'stderr' | 'signal'
> {
  readonly config: Config;
  readonly log: Log;
  /**
   * Logs messages that the user must see at any log level; only `--quiet` silences
   * them.
   */
  readonly notices: Log;
  /** `--json`: stdout carries only one JSON document. */
  readonly isJson: boolean;
  readonly progress: Progress;
}

export interface CommandResult {
  /** The exit code; `EXIT.done` by default. */
  readonly exitCode?: ExitCode | undefined;
  /** The document that `--json` prints; undefined if the command wrote its own output. */
  readonly document?: Readonly<Record<string, unknown>> | readonly unknown[];
  /** The same result as text for a human reader. */
  readonly text?: string | undefined;
}

/** Runs a command. `options` contains its options and arguments by name. */
export type Handler<Options = object> = (
  options: Options,
  context: CommandContext,
) => Promise<CommandResult>;

export function exitCodeOf(
  verdict: Verdict | null,
  evidence: Readonly<Record<string, unknown>>,
): ExitCode {
  if (verdict === 'complete') return EXIT.done;
  return errorIn(evidence)?.isUnreachable === true
    ? EXIT.tryAgain
    : EXIT.verdict;
}

/** Returns the result of a command that consists of one run. */
export function runResult(ended: Run): CommandResult {
  const document = describeRun(ended);
  return {
    exitCode: exitCodeOf(ended.verdict, ended.evidence),
    document,
    text: runSummary(document),
  };
}
