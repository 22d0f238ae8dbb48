/** The command line: what there is, what each takes, and how errors are told. */
import { Argument, Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { readConfig, type Config } from '../config/environment.ts';
import { secretsOf } from '../config/secrets.ts';
import { errorCode, errorLine, UnreachableError, UsageError } from '../core/errors.ts';
import { hideSecrets, hideSecretsIn, rememberSecrets } from '../core/secrets.ts';
import { EXIT, type CommandContext, type CommandResult } from './context.ts';
import { settingsHelp } from './help.ts';
import { completionScript, SHELLS, type CompletionCommand, type Shell } from './completion.ts';
import { openTerminal, type Terminal, type TerminalOptions } from './output/terminal.ts';
import { RELEASE_NAMES } from '../sandbox/release-names.ts';
import { version } from '../core/version.ts';

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
type Run = <Options>(load: () => Promise<Handler<Options>>, options: Options) => Promise<void>;

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
    const isJson = environment.argv.includes('--json');
    if (error instanceof CommanderError) {
      if (error.exitCode === 0) return EXIT.done;
      if (isJson) tellDocument(environment, 'USAGE', error.message.replace(/^error: /, ''));
      return EXIT.wrong;
    }
    if (isJson) tellError(environment, error);
    return tell(environment, error);
  }
}

async function execute<Options>(
  environment: CliEnvironment,
  program: Command,
  load: () => Promise<Handler<Options>>,
  options: Options,
): Promise<number> {
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

/** Whoever reads documents gets one for a failure, too. */
function tellError(environment: CliEnvironment, error: unknown): void {
  const isStopped = environment.signal.aborted && !(error instanceof UsageError);
  const message = error instanceof UsageError ? error.message : errorLine(error);
  tellDocument(environment, isStopped ? 'STOPPED' : errorCode(error), message);
}

function tellDocument({ stdout }: CliEnvironment, code: string, message: string): void {
  stdout.write(`${JSON.stringify({ error: { code, message } }, null, 2)}\n`);
}

/** One line for each problem; never a stack trace for what a user can mend. */
function tell({ stderr, signal }: CliEnvironment, error: unknown): number {
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

const OUTPUT_OPTIONS = [
  ['json', 'one JSON document on stdout; progress and logs on stderr'],
  ['quiet', 'neither progress nor logs on stderr'],
] as const;

function declare({ stdout, stderr }: CliEnvironment, run: Run): Command {
  const program = new Command('ledger-mirror')
    .description(
      "Keeps a provably complete copy of a ledger network's query service, and feeds analytics from it.",
    )
    .version(version(), '--version')
    .option('--json', OUTPUT_OPTIONS[0][1])
    .option('--quiet', OUTPUT_OPTIONS[1][1])
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
  declareMirroring(program, run);
  declareReading(program, run);
  declareServing(program, run);
  declareShell(program, run, stdout);
  for (const command of program.commands) {
    for (const [flag, meaning] of OUTPUT_OPTIONS) command.option(`--${flag}`, meaning);
    command.exitOverride();
    for (const [flag] of OUTPUT_OPTIONS)
      command.on(`option:${flag}`, () => program.setOptionValue(flag, true));
  }
  return program;
}

function declareMirroring(program: Command, run: Run): void {
  program
    .command('sync')
    .description('bring the lists up to date now and wait')
    .addArgument(
      withWords(new Argument('<what>', 'parties, checkpoints or all'), ['parties', 'checkpoints', 'all']),
    )
    .option('--full', 'audit: every page again', false)
    .option('--party <id>', 'look one party up')
    .option('--accept-new-network', 'the source now serves another network: start a new epoch', false)
    .option('--accept-shrunk', 'the source serves many rows no longer, and that is right', false)
    .action((what: string, options) =>
      run(async () => (await import('./commands/sync.ts')).sync, { what, party: undefined, ...options }),
    );
  program
    .command('export')
    .description("export one party's ledger entries now and wait")
    .requiredOption('--party <id>', 'the party, as the source lists it')
    .option('--asset <id>', 'one asset only')
    .option('--from <time>', 'RFC 3339, or a day (midnight UTC); default: from the beginning')
    .option('--to <time>', 'likewise, exclusive; default: up to the present')
    .option('--out <file>', 'also write the assembled CSV to a file, or - for stdout')
    .option('--again', 'distrust what is covered in that range, and ask for it anew', false)
    .option('--no-load', 'leave loading to the next nightly run')
    .action((options) =>
      run(async () => (await import('./commands/export.ts')).exportParty, {
        asset: undefined,
        from: undefined,
        to: undefined,
        out: undefined,
        ...options,
      }),
    );
  program
    .command('nightly')
    .description('the scheduled run, now: lists, exports, load, lake, verify')
    .option('--dry-run', 'only print what it would ask the source', false)
    .action((options) => run(async () => (await import('./commands/nightly.ts')).nightly, options));
  program
    .command('load')
    .description('bring published objects into the warehouse and the lake, without the source')
    .option('--all', 'also rebuild the manifest from the objects first', false)
    .action((options) => run(async () => (await import('./commands/load.ts')).load, options));
}

function declareReading(program: Command, run: Run): void {
  program
    .command('verify')
    .description('check everything recorded as published or loaded against its sums')
    .option('--deep', 'also every row of the warehouse and the lake', false)
    .option('--against <report>', 'compare with the report of a nightly run: a file, its key, or the run id')
    .action((options) => run(async () => (await import('./commands/verify.ts')).verify, options));
  declareLake(program, run);
  program
    .command('query')
    .description('read-only SQL over the lake (ledger_entries, parties, checkpoints)')
    .argument('[sql]', 'the SQL, or the name of a ready question; without it a prompt')
    .option('--list', 'the ready questions', false)
    .option(
      '--format <format>',
      'table, csv, json, ndjson or parquet; by default what --output ends in, or table',
    )
    .option('--output <file>', 'write the result to a file, which appears when it is complete')
    .option('--timeout <seconds>', 'time limit', '60')
    .option('--since <time>', 'for a ready question: entries from this time on')
    .option('--until <time>', 'for a ready question: entries before this time')
    .option('--party <id>', 'for a ready question: one party')
    .option('--asset <id>', 'for a ready question: one asset')
    .action((sql: string | undefined, options) =>
      run(async () => (await import('./commands/query/query.ts')).query, { sql, ...options }),
    );
  program
    .command('status')
    .description('is the mirror complete, how fresh is it, what needs a person')
    .option('--watch', 'go on showing it until told to stop', false)
    .action((options) => run(async () => (await import('./commands/status.ts')).status, options));
  program
    .command('cancel')
    .description('end a run of any kind at its next safe point')
    .argument('<run>', 'its id')
    .action((runId: string) => run(async () => (await import('./commands/cancel.ts')).cancel, { runId }));
  program
    .command('runs')
    .description('what ran and how it ended')
    .argument('[run]', 'one run, with its evidence')
    .option('--limit <n>', 'how many', '20')
    .action((runId: string | undefined, options) =>
      run(async () => (await import('./commands/runs.ts')).runs, { runId, ...options }),
    );
  program
    .command('logs')
    .description("a run's log lines")
    .argument('<run>', 'its id')
    .action((runId: string) => run(async () => (await import('./commands/logs.ts')).logs, { runId }));
  program
    .command('doctor')
    .description('check the configuration and everything it points to')
    .action((options) => run(async () => (await import('./commands/doctor.ts')).doctor, options));
  program
    .command('migrate')
    .description("bring the warehouse's schema forward")
    .action((options) => run(async () => (await import('./commands/migrate.ts')).migrateCommand, options));
}

function declareLake(program: Command, run: Run): void {
  const lake = program
    .command('lake')
    .description('the tables of the lake: versions, files, bytes; takes broken checkpoints away')
    .action(() => run(async () => (await import('./commands/lake.ts')).lake, {}));
  lake
    .command('vacuum')
    .description('remove what no version names any more, after LAKE_RETENTION')
    .action(() => run(async () => (await import('./commands/lake.ts')).lakeVacuum, {}));
  lake
    .command('restore')
    .description('make the lake what it was, until the next load')
    .argument('<version>', "the moment's number, as `lake` shows it")
    .action((version: string) =>
      run(async () => (await import('./commands/lake.ts')).lakeRestore, { version }),
    );
}

function declareServing(program: Command, run: Run): void {
  program
    .command('demo')
    .description('mirror a sandbox network with everything embedded, verify it, answer three questions')
    .option('--keep', 'leave it running with the console open', false)
    .action((options) => run(async () => (await import('./commands/serving/demo.ts')).demo, options));
  program
    .command('up')
    .description('workers, schedules, read API and console in one process')
    .action((options) => run(async () => (await import('./commands/serving/up.ts')).up, options));
  program
    .command('worker')
    .description('only workers and schedules')
    .action((options) => run(async () => (await import('./commands/serving/up.ts')).worker, options));
  program
    .command('serve')
    .description('only the read API and the console')
    .action((options) => run(async () => (await import('./commands/serving/up.ts')).serve, options));
  program
    .command('sandbox')
    .description('serve a made-up network, for trying things out')
    .option('--host <host>', 'where to listen; 0.0.0.0: on all addresses', '127.0.0.1')
    .option('--port <port>', 'its port (0: a free one)', wholeNumber(0, 65_535), 8090)
    .option('--parties <n>', 'how many parties there are', wholeNumber(1, 10_000_000), 200)
    .option('--entries <n>', 'ledger entries in all, about', wholeNumber(0, 1_000_000_000), 50_000)
    .option('--seed <seed>', 'the same seed and genesis, the same network', 'sandbox')
    .addOption(
      new Option('--release <name>', 'whose exports it serves: columns, filters and order')
        .choices(RELEASE_NAMES)
        .default('0.71.4'),
    )
    .option(
      '--genesis <time>',
      'when it began; default: a week before its first start, kept in DATA_DIR/sandbox.json',
    )
    .option('--truth-port <port>', 'also serve what is true, for comparing', wholeNumber(0, 65_535))
    .action((options) => run(async () => (await import('./commands/serving/sandbox.ts')).sandbox, options));
}

function declareShell(program: Command, run: Run, stdout: CliEnvironment['stdout']): void {
  program
    .command('config')
    .description('what is set, and where each value comes from; secrets are masked')
    .action((options) => run(async () => (await import('./commands/config.ts')).config, options));
  program
    .command('completion')
    .description('print a completion script')
    .addArgument(new Argument('<shell>', 'the shell that reads the script').choices(SHELLS))
    .action((shell: Shell) => {
      stdout.write(completionScript(shell, completionCommands(program)));
    });
}

/** Words for completion alone: the command itself says what is wrong with another one. */
function withWords(argument: Argument, words: string[]): Argument {
  argument.argChoices = words;
  return argument;
}

function completionCommands(program: Command): readonly CompletionCommand[] {
  return program.commands.map((command) => ({
    name: command.name(),
    description: command.description(),
    options: command.options.flatMap(({ long, description }) =>
      typeof long === 'string' ? [{ flag: long, description }] : [],
    ),
    words: command.registeredArguments[0]?.argChoices ?? [],
  }));
}

function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^\d{1,12}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= min && value <= max) return value;
    throw new InvalidArgumentError(`Give a whole number from ${min} to ${max}.`);
  };
}
