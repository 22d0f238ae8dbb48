/** The command line: every command, with what all of them share. */
import { Command, CommanderError } from 'commander';
import { readConfig } from '../config/environment.ts';
import { secretsOf } from '../config/secrets.ts';
import { SETTINGS } from '../config/settings.ts';
import {
  errorCode,
  errorLine,
  UnreachableError,
  UsageError,
} from '../errors/errors.ts';
import { withoutSecrets } from '../json/json-value.ts';
import { hideSecrets, rememberSecrets } from '../secrets/secret-masking.ts';
import { version } from '../version.ts';
import {
  EXIT,
  type CliEnvironment,
  type ExitCode,
  type Handler,
} from './context.ts';
import { declareCommands } from './declare.ts';
import { nameCommands } from './typed.ts';

/** What each exit code tells a script. */
export const EXIT_CODES = [
  [EXIT.done, 'done, verdict complete'],
  [EXIT.wrong, 'wrong usage or configuration, or a bug'],
  [
    EXIT.verdict,
    'ended with another verdict: incomplete, suspicious or failed',
  ],
  [
    EXIT.tryAgain,
    'a service could not be reached for 60 s, or the command was stopped while ' +
      'waiting: try again',
  ],
] as const;
const NAME_CHARACTERS = 29;
/** Commands whose log says nothing below a warning unless `LOG_LEVEL` is set. */
const CALM: ReadonlySet<string> = new Set([
  'demo',
  'status',
  'runs',
  'logs',
  'query',
  'lake',
  'config',
]);

/** @returns the exit code; everything that could go wrong has been told on stderr */
export async function runCli(environment: CliEnvironment): Promise<number> {
  const { argv, stdout, stderr } = environment;
  let exitCode: number = EXIT.done;
  const program = new Command('ledger-mirror')
    .description(
      "Keeps a provably complete copy of a ledger network's query service, and " +
        'feeds analytics from it.',
    )
    .version(version(), '--version')
    .option(
      '--json',
      'one JSON document on stdout; progress and logs on stderr',
    )
    .option('--quiet', 'neither progress nor logs on stderr')
    .addHelpText('after', describeSettings)
    .configureHelp({ showGlobalOptions: true })
    .exitOverride()
    .configureOutput({
      writeOut: (text) => stdout.write(text),
      writeErr: (text) => stderr.write(text),
      // As every other error of ours begins.
      outputError: (text, write) =>
        write(
          text
            .replace(/^error: /, 'ledger-mirror: ')
            .replace('command-argument value', 'the value'),
        ),
    })
    .showSuggestionAfterError();
  declareCommands(program, (parent, name, description, load) => {
    const command = parent.command(name).description(description);
    return command.action(async () => {
      const names = command.registeredArguments.map((argument) =>
        argument.name(),
      );
      const given = Object.fromEntries(
        names.map((argument, at) => [argument, command.processedArgs[at]]),
      );
      const handler = async () => (await load())[name];
      exitCode = await execute(environment, name, handler, {
        ...command.optsWithGlobals(),
        ...given,
      });
    });
  });
  try {
    await program.parseAsync([...argv], { from: 'user' });
    return exitCode;
  } catch (error) {
    return tellFailure(environment, error);
  }
}

/**
 * Reads the settings, opens the terminal, and writes what the command answers. @returns
 * the exit code
 */
async function execute(
  environment: CliEnvironment,
  name: string,
  load: () => Promise<Handler<never>>,
  options: { readonly json?: boolean; readonly quiet?: boolean },
): Promise<number> {
  const { stdout, stderr } = environment;
  const { json: isJson = false, quiet: isQuiet = false } = options;
  const config = readConfig(environment);
  rememberSecrets(secretsOf(config));
  // The SDK of S3 looks for its files, profiles and roles in the process's environment.
  for (const [variable, value] of Object.entries(config.ambient))
    if (variable.startsWith('AWS_')) environment.setVariable?.(variable, value);
  // Neither `--version` nor `--help` comes as far: the log, TLS and a command's own modules
  // are most of what would be loaded for them.
  const [{ applyNetworkDefaults }, { openTerminal }] = await Promise.all([
    import('../network/trust.ts'),
    import('./output/progress.ts'),
  ]);
  const networkProblem = applyNetworkDefaults(config.ambient);
  // Bars on a terminal, and the demo itself, tell what happens; a command that only reads
  // does nothing that its output does not show. Of the log, only what needs attention.
  const isCalm =
    (stderr.isTTY === true || CALM.has(name)) &&
    config.origins.logLevel === 'default';
  const usual = isCalm ? 'warn' : config.logLevel;
  const level = isQuiet ? 'silent' : usual;
  const handle = await load();
  const run = async () => {
    const { log, notices, ...terminal } = openTerminal(stderr, level, isQuiet);
    if (networkProblem !== undefined) notices.warn(networkProblem);
    // Restored before anything else is written to it.
    using progress = terminal.progress;
    return await handle(options as never, {
      ...environment,
      config,
      log,
      notices,
      isJson,
      progress,
    });
  };
  const { document, text, exitCode = EXIT.done } = await run();
  if (isJson && document !== undefined)
    stdout.write(`${JSON.stringify(withoutSecrets(document), null, 2)}\n`);
  if (!isJson && text !== undefined)
    stdout.write(nameCommands(hideSecrets(text)));
  return exitCode;
}

/**
 * Everything that went wrong is told once this returns; with `--json` as a document, too.
 */
export function tellFailure(
  { argv, stdout, stderr, signal }: CliEnvironment,
  error: unknown,
): ExitCode {
  // Commander has written its lines, and those of `--help`, already.
  const isTold = error instanceof CommanderError;
  if (isTold && error.exitCode === 0) return EXIT.done;
  const failure = classify(firstFailureOf(error), signal);
  const lines = failure.lines.map((line) => nameCommands(hideSecrets(line)));
  if (argv.includes('--json')) {
    const document = {
      error: { code: failure.code, message: lines.join('\n') },
    };
    stdout.write(`${JSON.stringify(document, null, 2)}\n`);
  }
  if (!isTold)
    for (const line of lines) stderr.write(`ledger-mirror: ${line}\n`);
  return failure.exitCode;
}

/**
 * A failure may be followed by others while everything is closed, as a database that refuses who
 * asks refuses a goodbye too. The first one is what a person must look at.
 */
function firstFailureOf(error: unknown): unknown {
  let first = error;
  // By its name: the class is not there in every Node that runs this.
  while (
    first instanceof Error &&
    first.name === 'SuppressedError' &&
    'suppressed' in first
  )
    first = first.suppressed;
  return first;
}

/** A line for each problem; never a stack trace for what a user can mend. */
function classify(error: unknown, signal: AbortSignal) {
  if (error instanceof CommanderError)
    return {
      code: 'USAGE',
      lines: [error.message.replace(/^error: /, '')],
      exitCode: EXIT.wrong,
    };
  if (error instanceof UsageError)
    return { code: error.code, lines: error.problems, exitCode: EXIT.wrong };
  if (signal.aborted) {
    const line =
      'stopped; what was saved stays, and the next command continues from there';
    return { code: 'STOPPED', lines: [line], exitCode: EXIT.tryAgain };
  }
  const exitCode =
    error instanceof UnreachableError ? EXIT.tryAgain : EXIT.wrong;
  return { code: errorCode(error), lines: [errorLine(error)], exitCode };
}

/** What `--help` says below the commands. */
function describeSettings(): string {
  const secrets = SETTINGS.filter((setting) => setting.secret === true).map(
    (setting) => setting.name,
  );
  const lines = SETTINGS.flatMap(({ name, help, accepted, fallback }) => [
    `  ${name.padEnd(NAME_CHARACTERS)}${help}`,
    `  ${' '.repeat(NAME_CHARACTERS)}  ` +
      `${accepted}${fallback === undefined ? '' : ` (default ${fallback})`}`,
  ]);
  return [
    '',
    "Settings (environment, or '.env' in the working directory; an empty value " +
      'counts as unset):',
    ...lines,
    '',
    'Secrets, never shown or stored; each can come from a file named by …_FILE: ' +
      secrets.join(', '),
    '',
    'Exit codes:',
    ...EXIT_CODES.map(
      ([code, meaning]) => `  ${String(code).padEnd(4)}${meaning}`,
    ),
    '',
  ].join('\n');
}
