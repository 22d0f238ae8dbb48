/** How a command says that it failed, and what it ends in. */
import { CommanderError } from 'commander';
import { errorCode, errorLine, UnreachableError, UsageError } from '../core/errors.ts';
import { hideSecrets } from '../core/secrets.ts';
import { EXIT, type CliEnvironment, type ExitCode } from './context.ts';
import { nameCommands } from './typed.ts';

/** Everything that went wrong is told once this returns; with `--json` as a document, too. */
export function tellFailure({ argv, stdout, stderr, signal }: CliEnvironment, error: unknown): ExitCode {
  // Commander has written its lines, and those of `--help`, already.
  const isTold = error instanceof CommanderError;
  if (isTold && error.exitCode === 0) return EXIT.done;
  const failure = classify(error, signal);
  const lines = failure.lines.map((line) => nameCommands(hideSecrets(line)));
  if (argv.includes('--json')) {
    const document = { error: { code: failure.code, message: lines.join('\n') } };
    stdout.write(`${JSON.stringify(document, null, 2)}\n`);
  }
  if (!isTold) for (const line of lines) stderr.write(`ledger-mirror: ${line}\n`);
  return failure.exitCode;
}

/** A line for each problem; never a stack trace for what a user can mend. */
function classify(error: unknown, signal: AbortSignal) {
  if (error instanceof CommanderError)
    return { code: 'USAGE', lines: [error.message.replace(/^error: /, '')], exitCode: EXIT.wrong };
  if (error instanceof UsageError) return { code: error.code, lines: error.problems, exitCode: EXIT.wrong };
  if (signal.aborted) {
    const line = 'told to stop; what was committed stays, the next command goes on from there';
    return { code: 'STOPPED', lines: [line], exitCode: EXIT.tryAgain };
  }
  const exitCode = error instanceof UnreachableError ? EXIT.tryAgain : EXIT.wrong;
  return { code: errorCode(error), lines: [errorLine(error)], exitCode };
}
