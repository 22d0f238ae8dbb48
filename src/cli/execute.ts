/** Runs one command: reads the settings, opens the terminal, and writes what the command answers. */
import type { Command } from 'commander';
import { readConfig, type Config } from '../config/environment.ts';
import { secretsOf } from '../config/secrets.ts';
import { hideSecrets, hideSecretsIn, rememberSecrets } from '../core/secrets.ts';
import type { CommandContext, CommandResult, ExitCode } from './context.ts';
import { openTerminal, type Terminal, type TerminalOptions } from './output/terminal.ts';

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
  const { json: isJson = false, quiet: isQuiet = false } = program.opts<OutputOptions>();
  // The demo says itself how far it is: of its log, only what needs attention.
  const isTold = environment.stderr.isTTY === true || program.args[0] === 'demo';
  const config = readConfig({ env: environment.env, cwd: environment.cwd });
  rememberSecrets(secretsOf(config));
  const handler = await load();
  const result = await inTerminal(terminalOf(environment, config, { isQuiet, isTold }), ({ log, progress }) =>
    handler(options, { ...environment, config, log, isJson, progress }),
  );
  if (isJson && result.document !== undefined)
    environment.stdout.write(`${JSON.stringify(hideSecretsIn(result.document), null, 2)}\n`);
  if (!isJson && result.text !== undefined) environment.stdout.write(hideSecrets(result.text));
  return result.exitCode;
}

function terminalOf(
  { stderr }: CliEnvironment,
  config: Config,
  { isQuiet, isTold }: { readonly isQuiet: boolean; readonly isTold: boolean },
): Pick<TerminalOptions, 'stream' | 'level' | 'isQuiet'> {
  // On a terminal bars tell what happens; only what needs attention is logged beside them.
  const isCalm = isTold && config.origins.logLevel === 'default';
  const level = isQuiet ? 'silent' : isCalm ? 'warn' : config.logLevel;
  return { stream: stderr, level, isQuiet };
}

/** The terminal is restored before anything else is written to it. */
async function inTerminal<Result>(
  options: TerminalOptions,
  work: (terminal: Terminal) => Promise<Result>,
): Promise<Result> {
  await using terminal = openTerminal(options);
  return await work(terminal);
}
