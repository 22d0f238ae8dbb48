/** The command line: every command, with what all of them share. */
import { Command } from 'commander';
import { version } from '../core/version.ts';
import { EXIT } from './context.ts';
import { declareMirroring } from './declare/mirroring.ts';
import { declareOperating } from './declare/operating.ts';
import { declareReading } from './declare/reading.ts';
import { declareServing } from './declare/serving.ts';
import { declareShell } from './declare/shell.ts';
import { execute, type CliEnvironment, type Run } from './execute.ts';
import { tellFailure } from './failure.ts';
import { settingsHelp } from './help.ts';

const OUTPUT_OPTIONS = [
  ['json', 'one JSON document on stdout; progress and logs on stderr'],
  ['quiet', 'neither progress nor logs on stderr'],
] as const;

/** @returns the exit code; everything that could go wrong has been told on stderr */
export async function runCli(environment: CliEnvironment): Promise<number> {
  let exitCode: number = EXIT.done;
  const program = declare(environment, async (load, options) => {
    exitCode = await execute(environment, program, load, options);
  });
  try {
    await program.parseAsync([...environment.argv], { from: 'user' });
    return exitCode;
  } catch (error) {
    return tellFailure(environment, error);
  }
}

function declare({ stdout, stderr }: CliEnvironment, run: Run): Command {
  const program = new Command('ledger-mirror')
    .description(
      "Keeps a provably complete copy of a ledger network's query service, and feeds analytics from it.",
    )
    .version(version(), '--version')
    .addHelpText('after', () => settingsHelp())
    .exitOverride()
    .configureOutput({
      writeOut: (text) => stdout.write(text),
      writeErr: (text) => stderr.write(text),
      // As every other error of ours begins.
      outputError: (text, write) => write(text.replace(/^error: /, 'ledger-mirror: ')),
    })
    .showSuggestionAfterError()
    .enablePositionalOptions(false);
  for (const [flag, meaning] of OUTPUT_OPTIONS) program.option(`--${flag}`, meaning);
  declareMirroring(program, run);
  declareReading(program, run);
  declareOperating(program, run);
  declareServing(program, run);
  declareShell(program, run, stdout);
  for (const command of program.commands) shareOptions(command, program);
  return program;
}

/** `--json` and `--quiet` mean the same before a command and behind it. */
function shareOptions(command: Command, program: Command): void {
  command.exitOverride();
  for (const [flag, meaning] of OUTPUT_OPTIONS) {
    command.option(`--${flag}`, meaning);
    command.on(`option:${flag}`, () => program.setOptionValue(flag, true));
  }
}
