/** What every command is handed, and what it answers with. */
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
  /** Wrong usage or configuration, or a bug. */
  wrong: 1,
  /** Ended with another verdict than `complete`. */
  verdict: 2,
  /** A service could not be reached, or a waiting command was told to stop. */
  tryAgain: 75,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

export interface CliEnvironment {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  /**
   * Sets a variable that the process was not given, for libraries that read its
   * environment and nothing else.
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
   * Shows what the user must see at every level; only `--quiet` silences it.
   */
  readonly notices: Log;
  /** `--json`: one document on stdout and nothing else there. */
  readonly isJson: boolean;
  readonly progress: Progress;
}

export interface CommandResult {
  /** Default: done. */
  readonly exitCode?: ExitCode | undefined;
  /** For `--json`; undefined where the command wrote its own output. */
  readonly document?: Readonly<Record<string, unknown>> | readonly unknown[];
  /** For people. */
  readonly text?: string | undefined;
}

/** Does a command, with its options and its arguments under their names. */
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

/** What a command answers that did one run. */
export function runResult(ended: Run): CommandResult {
  const document = describeRun(ended);
  return {
    exitCode: exitCodeOf(ended.verdict, ended.evidence),
    document,
    text: runSummary(document),
  };
}
