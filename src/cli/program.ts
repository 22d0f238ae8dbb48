/** The command line: registers every command, and does what all of them share. */
import { Command, CommanderError } from 'commander';
import { readConfig } from '../config/environment.ts';
import { secretsOf } from '../config/secrets.ts';
import { SETTINGS } from '../config/settings.ts';
import { findNear } from '../errors/did-you-mean.ts';
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
import { nameCommands } from './command-name.ts';

/** The meaning of each exit code for a script. */
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
/** Commands that log only warnings and errors unless `LOG_LEVEL` is set. */
const CALM: ReadonlySet<string> = new Set([
  'demo',
  'status',
  'runs',
  'logs',
  'query',
  'lake',
  'config',
]);

/**
 * Runs one command.
 * @returns the exit code; any failure has already been reported on stderr
 */
export async function runCli(environment: CliEnvironment): Promise<number> {
  const { argv, stdout, stderr } = environment;
  let exitCode: number = EXIT.done;
  const program = new Command('ledger-mirror')
    .description(
      "Keeps a provably complete copy of a ledger network's query service, and " +
        'answers questions about it with SQL.',
    )
    .version(version(), '--version')
    .option(
      '--json',
      'one JSON document on stdout; progress and logs on stderr',
    )
    .option('--quiet', 'neither progress nor logs on stderr')
    .addHelpText('after', ({ error: isCommandMissing }) =>
      isCommandMissing ? SHORT_HELP : describeSettings(),
    )
    .configureHelp({ showGlobalOptions: true })
    .exitOverride()
    .configureOutput({
      writeOut: (text) => stdout.write(text),
      writeErr: (text) => stderr.write(text),
      // Start the message with the program's name, like every other error that we print.
      outputError: (text, write) =>
        write(
          text
            .replace(/^error: /, 'ledger-mirror: ')
            .replace('command-argument value', 'the value')
            .replace(EXCESS_ARGUMENT, (told, name: string, given: string) =>
              describeExcess(program, { told, name, given }),
            ),
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
 * Reads the settings, opens the terminal, runs the command and writes its result.
 * @returns the exit code
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
  // The S3 SDK looks for its files, profiles and roles in the process's environment.
  for (const [variable, value] of Object.entries(config.ambient))
    if (variable.startsWith('AWS_')) environment.setVariable?.(variable, value);
  // `--version` and `--help` never get this far. They do not need the log, TLS or the
  // command's own modules, which make up most of the code that the program loads.
  const [{ applyNetworkDefaults }, { openTerminal }] = await Promise.all([
    import('../network/trust.ts'),
    import('./output/progress.ts'),
  ]);
  const networkProblem = applyNetworkDefaults(config.ambient);
  // Only warnings and errors are logged in three cases: on a terminal, where progress
  // bars show what is happening; by the demo, which reports its own steps; and by
  // read-only commands, whose output already shows what they did.
  const isCalm =
    (stderr.isTTY === true || CALM.has(name)) &&
    config.origins.logLevel === 'default';
  const usual = isCalm ? 'warn' : config.logLevel;
  const level = isQuiet ? 'silent' : usual;
  const handle = await load();
  const run = async () => {
    const { log, notices, ...terminal } = openTerminal(stderr, level, isQuiet);
    if (networkProblem !== undefined) notices.warn(networkProblem);
    // Restores the terminal before anything else is written to it.
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

/** Reports a failure on stderr and, with `--json`, also as a document on stdout. */
export function tellFailure(
  { argv, stdout, stderr, signal }: CliEnvironment,
  error: unknown,
): ExitCode {
  // Commander has already written its own errors, and the text of `--help`.
  const isTold = error instanceof CommanderError;
  if (isTold && error.exitCode === 0) return EXIT.done;
  // The `help` command is a success. Without any command, the same text is shown as an
  // error.
  if (isTold && error.code === 'commander.help' && argv.includes('help'))
    return EXIT.done;
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
 * Returns the first failure of a chain, which is the cause that the user must see.
 * Closing the resources may raise further failures: if a database refuses a client, its
 * connection cannot be closed cleanly either.
 */
function firstFailureOf(error: unknown): unknown {
  let first = error;
  // The class is compared by name, because not every supported Node version has it.
  while (
    first instanceof Error &&
    first.name === 'SuppressedError' &&
    'suppressed' in first
  )
    first = first.suppressed;
  return first;
}

/** Returns one line for each problem, without a stack trace if the user can fix it. */
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

/** Commander's message for one argument too many. */
const EXCESS_ARGUMENT =
  /^(?:error|ledger-mirror): too many arguments for '(\S+)'\. Expected 0 arguments but got 1: (\S+)\./;

/**
 * Suggests the subcommand that a mistyped one was meant to be, if the command has
 * subcommands.
 */
function describeExcess(
  program: Command,
  { told, name, given }: Readonly<Record<'told' | 'name' | 'given', string>>,
): string {
  const parent = program.commands.find((command) => command.name() === name);
  const known = parent?.commands.map((command) => command.name()) ?? [];
  if (known.length === 0) return told;
  const near = findNear(given, known);
  const hint =
    near === undefined
      ? ` It has ${known.join(' and ')}.`
      : ` Did you mean ${near}?`;
  return `ledger-mirror: ${name} has no command '${given}'.${hint}`;
}

/** Shown instead of the settings if no command was given. */
const SHORT_HELP =
  "\n'ledger-mirror --help' also lists the settings. To try it out: ledger-mirror demo";

/** Returns the text that `--help` shows after the commands. */
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
