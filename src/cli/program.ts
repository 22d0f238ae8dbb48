/** The command line: every command, with what all of them share. */
import { Command } from 'commander';
import { readConfig } from '../config/environment.ts';
import { secretsOf } from '../config/secrets.ts';
import { hideSecretsIn } from '../core/json-value.ts';
import { hideSecrets, rememberSecrets } from '../core/secrets.ts';
import { version } from '../core/version.ts';
import { EXIT, type CliEnvironment, type CommandResult } from './context.ts';
import { declareCommands, type Load } from './declare.ts';
import { tellFailure } from './failure.ts';
import { settingsHelp } from './help.ts';
import { openTerminal } from './output/progress.ts';
import { nameCommands } from './typed.ts';

/** @returns the exit code; everything that could go wrong has been told on stderr */
export async function runCli(environment: CliEnvironment): Promise<number> {
  const { argv, stdout, stderr } = environment;
  let exitCode: number = EXIT.done;
  const program = new Command('ledger-mirror')
    .description(
      "Keeps a provably complete copy of a ledger network's query service, and feeds analytics from it.",
    )
    .version(version(), '--version')
    .option('--json', 'one JSON document on stdout; progress and logs on stderr')
    .option('--quiet', 'neither progress nor logs on stderr')
    .addHelpText('after', () => settingsHelp())
    .configureHelp({ showGlobalOptions: true })
    .exitOverride()
    .configureOutput({
      writeOut: (text) => stdout.write(text),
      writeErr: (text) => stderr.write(text),
      // As every other error of ours begins.
      outputError: (text, write) => write(text.replace(/^error: /, 'ledger-mirror: ')),
    })
    .showSuggestionAfterError();
  declareCommands(program, (parent, name, description, load) => {
    const command = parent.command(name).description(description);
    return command.action(async () => {
      const given = command.registeredArguments.map((argument, at) => [
        argument.name(),
        command.processedArgs[at],
      ]);
      const options = { ...command.optsWithGlobals<OutputOptions>(), ...Object.fromEntries(given) };
      exitCode = await execute(environment, load, options, name === 'demo');
    });
  });
  try {
    await program.parseAsync([...argv], { from: 'user' });
    return exitCode;
  } catch (error) {
    return tellFailure(environment, error);
  }
}

/** How a command tells what it does, whichever it is. */
interface OutputOptions {
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/** Reads the settings, opens the terminal, and writes what the command answers. @returns the exit code */
async function execute(
  environment: CliEnvironment,
  load: Load,
  options: OutputOptions,
  isDemo: boolean,
): Promise<number> {
  const { env, cwd, stdout, stderr } = environment;
  const { json: isJson = false, quiet: isQuiet = false } = options;
  const config = readConfig({ env, cwd });
  rememberSecrets(secretsOf(config));
  // Bars on a terminal, and the demo itself, tell what happens: of the log, only what needs attention.
  const isCalm = (stderr.isTTY === true || isDemo) && config.origins.logLevel === 'default';
  const level = isQuiet ? 'silent' : isCalm ? 'warn' : config.logLevel;
  const handle = await load();
  let result: CommandResult;
  {
    const { log, ...terminal } = openTerminal(stderr, level, isQuiet);
    // Restored before anything else is written to it.
    using progress = terminal.progress;
    result = await handle(options as never, { ...environment, config, log, isJson, progress });
  }
  const { document, text, exitCode = EXIT.done } = result;
  if (isJson && document !== undefined) stdout.write(`${JSON.stringify(hideSecretsIn(document), null, 2)}\n`);
  if (!isJson && text !== undefined) stdout.write(nameCommands(hideSecrets(text)));
  return exitCode;
}
