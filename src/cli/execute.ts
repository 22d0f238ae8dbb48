/** Runs one command: reads the settings, opens the terminal, and writes what the command answers. */
import type { Command } from 'commander';
import { readConfig } from '../config/environment.ts';
import { secretsOf } from '../config/secrets.ts';
import { hideSecretsIn } from '../core/json-value.ts';
import { hideSecrets, rememberSecrets } from '../core/secrets.ts';
import type { CommandContext, CommandResult, ExitCode } from './context.ts';
import { nameCommands } from './typed.ts';
import { openTerminal } from './output/terminal.ts';

export interface CliEnvironment {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly stdout: CommandContext['stdout'];
  readonly stderr: CommandContext['stderr'];
  readonly signal: AbortSignal;
}

/** How a command tells what it does, whichever it is. */
interface OutputOptions {
  readonly json?: boolean;
  readonly quiet?: boolean;
}

type Handler<Options> = (options: Options, context: CommandContext) => Promise<CommandResult>;
/** What a declared command calls: its module is loaded once it is chosen. */
export type Run = <Options>(load: () => Promise<Handler<Options>>, options: Options) => Promise<void>;

export async function execute<Options>(
  environment: CliEnvironment,
  program: Command,
  load: () => Promise<Handler<Options>>,
  options: Options,
): Promise<ExitCode> {
  const { env, cwd, stdout, stderr } = environment;
  const { json: isJson = false, quiet: isQuiet = false } = program.opts<OutputOptions>();
  const config = readConfig({ env, cwd });
  rememberSecrets(secretsOf(config));
  // Bars on a terminal, and the demo itself, tell what happens: of the log, only what needs attention.
  const isTold = stderr.isTTY === true || program.args[0] === 'demo';
  const isCalm = isTold && config.origins.logLevel === 'default';
  const level = isQuiet ? 'silent' : isCalm ? 'warn' : config.logLevel;
  const handler = await load();
  let result: CommandResult;
  {
    const terminal = openTerminal({ stream: stderr, level, isQuiet });
    // Restored before anything else is written to it.
    using progress = terminal.progress;
    const { log } = terminal;
    result = await handler(options, { ...environment, config, log, isJson, progress });
  }
  if (isJson && result.document !== undefined)
    stdout.write(`${JSON.stringify(hideSecretsIn(result.document), null, 2)}\n`);
  if (!isJson && result.text !== undefined) stdout.write(nameCommands(hideSecrets(result.text)));
  return result.exitCode;
}
