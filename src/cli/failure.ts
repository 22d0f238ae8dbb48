/** How a command says that it failed, and what it ends in. */
import { CommanderError } from 'commander';
import { errorCode, errorLine, UnreachableError, UsageError } from '../core/errors.ts';
import { hideSecrets } from '../core/secrets.ts';
import { EXIT, type ExitCode } from './context.ts';
import type { CliEnvironment } from './execute.ts';

/** Everything that went wrong is told once this returns; with `--json` as a document, too. */
export function tellFailure(environment: CliEnvironment, error: unknown): ExitCode {
  const isJson = environment.argv.includes('--json');
  if (error instanceof CommanderError) {
    // Its lines, and those of `--help`, are written already.
    if (error.exitCode === 0) return EXIT.done;
    if (isJson) tellDocument(environment, 'USAGE', error.message.replace(/^error: /, ''));
    return EXIT.wrong;
  }
  const isUsage = error instanceof UsageError;
  const code = environment.signal.aborted && !isUsage ? 'STOPPED' : errorCode(error);
  if (isJson) tellDocument(environment, code, isUsage ? error.message : errorLine(error));
  return tellLines(environment, error);
}

function tellDocument({ stdout }: CliEnvironment, code: string, message: string): void {
  stdout.write(`${JSON.stringify({ error: { code, message: hideSecrets(message) } }, null, 2)}\n`);
}

/** One line for each problem; never a stack trace for what a user can mend. */
function tellLines({ stderr, signal }: CliEnvironment, error: unknown): ExitCode {
  if (error instanceof UsageError) {
    for (const problem of error.problems) stderr.write(`ledger-mirror: ${hideSecrets(problem)}\n`);
    return EXIT.wrong;
  }
  if (signal.aborted) {
    stderr.write(
      'ledger-mirror: told to stop; what was committed stays, the next command goes on from there\n',
    );
    return EXIT.tryAgain;
  }
  stderr.write(`ledger-mirror: ${hideSecrets(errorLine(error))}\n`);
  return error instanceof UnreachableError ? EXIT.tryAgain : EXIT.wrong;
}
