/** What every command is handed, and what it answers with. */
import type { Writable } from 'node:stream';
import type { Config } from '../config/environment.ts';
import type { Log } from '../core/log.ts';
import type { Verdict } from '../core/verdict.ts';
import { errorIn } from '../runs/run-document.ts';
import type { Progress } from './output/progress.ts';

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

export interface CommandContext {
  readonly config: Config;
  readonly log: Log;
  /** `--json`: one document on stdout and nothing else there. */
  readonly isJson: boolean;
  readonly progress: Progress;
  readonly stdout: Writable & { readonly columns?: number; readonly isTTY?: boolean };
  readonly stderr: NodeJS.WritableStream & { readonly isTTY?: boolean };
  /** Aborted by the first SIGTERM or SIGINT. */
  readonly signal: AbortSignal;
}

export interface CommandResult {
  readonly exitCode: ExitCode;
  /** For `--json`; undefined where the command wrote its own output. */
  readonly document?: Readonly<Record<string, unknown>> | readonly unknown[];
  /** For people. */
  readonly text?: string | undefined;
}

export function exitCodeOf(verdict: Verdict | null, evidence: Readonly<Record<string, unknown>>): ExitCode {
  if (verdict === 'complete') return EXIT.done;
  return errorIn(evidence)?.isUnreachable === true ? EXIT.tryAgain : EXIT.verdict;
}
