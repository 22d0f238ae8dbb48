/**
 * Declares every command with its options. The module that implements a command is loaded
 * only when that command runs.
 */
import {
  Argument,
  type Command,
  InvalidArgumentError,
  Option,
} from 'commander';
import { integer } from '../config/value-forms.ts';
import type { QueryFormat } from '../lake/query/query.ts';
import { RELEASE_NAMES } from '../sandbox/options.ts';
import { completionScript, SHELLS } from './completion.ts';
import type { Handler } from './context.ts';

/**
 * Declares a command. `load` imports the module that exports the handler under the
 * command's name.
 */
type Add = <Name extends string>(
  parent: Command,
  name: Name,
  description: string,
  load: () => Promise<Readonly<Record<Name, Handler<never>>>>,
) => Command;

const loadSync = () => import('./commands/sync.ts');
const loadExport = () => import('./commands/export.ts');
const loadNightly = () => import('./commands/nightly.ts');
const loadQuery = () => import('./commands/query.ts');
const loadStatus = () => import('./commands/status.ts');
const loadDemo = () => import('./commands/demo.ts');
const loadSandbox = () => import('./commands/sandbox.ts');
const loadServing = () => import('./commands/up.ts');
const loadLake = () => import('./commands/lake.ts');
const loadProof = () => import('./commands/proof.ts');
const loadRuns = () => import('./commands/runs.ts');
const loadSetup = () => import('./commands/setup.ts');

/** The formats are repeated here because the module that implements them loads DuckDB. */
const FORMATS = [
  'table',
  'csv',
  'json',
  'ndjson',
  'parquet',
] satisfies QueryFormat[];

export function declareCommands(program: Command, add: Add): void {
  declareServing(program, add);
  declareMirroring(program, add);
  declareReading(program, add);
  declareOperating(program, add);
}

/**
 * Declares the commands that request data from the source, or load it into the warehouse
 * and the lake.
 */
function declareMirroring(program: Command, add: Add): void {
  add(program, 'sync', 'bring the lists up to date now and wait', loadSync)
    .addArgument(
      new Argument('<what>', 'which lists').choices([
        'parties',
        'checkpoints',
        'all',
      ]),
    )
    .option('--full', 'audit: every page again', false)
    .option('--party <id>', 'look one party up')
    .option(
      '--accept-new-network',
      'the source now serves another network: start a new epoch',
      false,
    )
    .option(
      '--accept-shrunk',
      'accept that the source now serves many fewer rows',
      false,
    );
  add(
    program,
    'export',
    "export one party's ledger entries now and wait",
    loadExport,
  )
    .requiredOption('--party <id>', 'the party, as the source lists it')
    .option('--asset <id>', 'one asset only')
    .option(
      '--from <time>',
      'such as 2026-03-01T00:00:00Z, 2026-03-01, 2026-03, yesterday or -30d (UTC); ' +
        'default: from the beginning',
    )
    .option('--to <time>', 'likewise, exclusive; default: up to the present')
    .option('--month <month>', 'a whole month, such as 2026-03')
    .option(
      '--out <file>',
      'also write the assembled CSV to a file, or - for stdout',
    )
    .option(
      '--again',
      'fetch the range again even if it is already covered',
      false,
    )
    .option('--no-load', 'leave loading to the next nightly run');
  const scheduled =
    'the scheduled run, now: lists, exports, load, lake, verify';
  const dryRun = 'only print what it would ask the source';
  const look =
    'with --dry-run, before the first run: estimate from two requests a list';
  add(program, 'nightly', scheduled, loadNightly)
    .option('--dry-run', dryRun, false)
    .option('--look', look, false);
  const published =
    'bring published objects into the warehouse and the lake, without the source';
  const all =
    'first rebuild the list of published objects from the object store';
  const takeOver =
    'this database owns the object store from now on; a former owner stops writing';
  add(program, 'load', published, loadNightly)
    .option('--all', all, false)
    .option('--take-over', takeOver, false);
}

/** Declares the commands that read mirrored data: checks, the lake, SQL. */
function declareReading(program: Command, add: Add): void {
  add(
    program,
    'verify',
    'check everything recorded as published or loaded against its sums',
    loadNightly,
  )
    .option('--deep', 'also every row of the warehouse and the lake', false)
    .option(
      '--accept-lost',
      'objects that are missing are lost for good, however many they are: the next ' +
        'nightly run asks the source for them',
      false,
    )
    .option(
      '--against <report>',
      'compare with the report of a nightly run (a file, its key, or the run id), or ' +
        'with a checkpoint of the log that was kept',
    );
  declareProving(program, add);
  const about =
    "list the lake's tables: versions, files, bytes; vacuum and restore maintain them";
  const lake = add(program, 'lake', about, loadLake);
  const vacuum = 'remove what no version names any more, after LAKE_RETENTION';
  add(lake, 'vacuum', vacuum, loadLake);
  const restore = 'make the lake what it was, until the next load';
  const moment = "the moment's number, as `lake` shows it";
  add(lake, 'restore', restore, loadLake).argument(
    '<version>',
    moment,
    wholeNumber(0, 9_999_999_999),
  );
  const format = 'by default what --output ends in, or table';
  add(
    program,
    'query',
    'read-only SQL over the lake (entries, daily_flows, monthly_fees and more)',
    loadQuery,
  )
    .argument(
      '[sql]',
      'the SQL, or the name of a ready question; omit it to get a prompt',
    )
    .option('--list', 'the ready questions', false)
    .addOption(new Option('--format <format>', format).choices(FORMATS))
    .option(
      '--output <file>',
      'write the result to a file, which appears when it is complete',
    )
    .option(
      '--chart [column]',
      'draw the result: bars by time or name, of the first column of amounts or ' +
        'the one that is named',
    )
    .option('--timeout <seconds>', 'time limit', wholeNumber(1, 86_400), 60)
    .option('--since <time>', 'for a ready question: entries from this time on')
    .option('--until <time>', 'for a ready question: entries before this time')
    .option('--month <month>', 'for a ready question: a month, such as 2026-03')
    .option('--at <time>', 'for the ready question around: an instant')
    .option('--party <id>', 'for a ready question: one party')
    .option('--asset <id>', 'for a ready question: one asset');
}

/** Declares the commands that let others check what the mirror claims about itself. */
function declareProving(program: Command, add: Add): void {
  const prove = 'prove that the mirror held these rows of a ledger on a night';
  add(program, 'prove', prove, loadProof)
    .requiredOption('--party <id>', 'whose ledger')
    .option('--asset <id>', 'if each asset has a ledger of its own')
    .option(
      '--at <night>',
      'its number, or a time: 2026-03-01, yesterday, 2026-03-01T10:00; default: the last',
    )
    .option(
      '--output <file>',
      'where the proof goes; default: standard output',
    );
  const check = 'check a proof, without the mirror and without a network';
  add(program, 'check-proof', check, loadProof)
    .argument('<file>', 'the proof')
    .argument(
      '[csv...]',
      "the ledger's CSV, plain or compressed; its parts together",
    )
    .requiredOption(
      '--key <key>',
      'the public key of the mirror, or a file with it',
    );
  const compare =
    'do two mirrors hold the same, and if not, where do they differ';
  const side = 'the address of a mirror, a store, a folder, or a statement';
  add(program, 'compare', compare, loadProof)
    .argument('<left>', side)
    .argument('<right>', side);
}

/**
 * Declares the commands for operators: the mirror's status, its runs, and checks of its
 * setup.
 */
function declareOperating(program: Command, add: Add): void {
  const check = 'end with exit code 2 if the mirror is not complete';
  add(
    program,
    'status',
    'is the mirror complete, how fresh is it, what needs a person',
    loadStatus,
  )
    .option('--check', check, false)
    .option(
      '--watch',
      'show it again whenever it changes, until Ctrl-C',
      false,
    );
  const cancel = 'end a run of any kind at its next safe point';
  add(program, 'cancel', cancel, loadRuns).argument('<run>', 'its id');
  add(program, 'runs', 'what ran and how it ended', loadRuns)
    .argument('[run]', 'one run, with its evidence')
    .option('--limit <n>', 'how many', wholeNumber(1, 1_000), 20)
    .option(
      '--since <time>',
      'those that started then or later: such as 2026-03-01, 2026-03, yesterday or ' +
        '-30d (UTC)',
    )
    .option('--until <time>', 'likewise: those that started before');
  add(program, 'logs', "a run's log lines", loadRuns).argument(
    '<run>',
    'its id',
  );
  add(
    program,
    'doctor',
    'check the configuration and everything it points to',
    loadSetup,
  );
  add(
    program,
    'notify',
    'send a test notice to NOTIFY_URL and show what became of it',
    loadSetup,
  );
  add(program, 'migrate', "bring the warehouse's schema forward", loadSetup);
  add(
    program,
    'config',
    'what is set, and where each value comes from; secrets are masked',
    loadSetup,
  );
  const completion = async ({ shell }: { shell: (typeof SHELLS)[number] }) => {
    const script = completionScript(shell, program);
    return { document: { shell, script }, text: script };
  };
  const script = 'print a completion script';
  add(program, 'completion', script, async () => ({ completion })).addArgument(
    new Argument('<shell>', 'the shell that reads the script').choices(SHELLS),
  );
}

/** Declares the commands that serve: most run until they are stopped. */
function declareServing(program: Command, add: Add): void {
  const demo =
    'mirror a sandbox network with everything embedded, verify it, answer three ' +
    'questions';
  add(program, 'demo', demo, loadDemo).option(
    '--keep',
    'leave it running with the console open',
    false,
  );
  add(
    program,
    'up',
    'workers, schedules, read API and console in one process',
    loadServing,
  );
  add(program, 'worker', 'only workers and schedules', loadServing);
  add(program, 'serve', 'only the read API and the console', loadServing);
  const parties =
    'how many parties there are a week after its genesis; more arrive later';
  const entries =
    'entries after the first week, roughly (up to twice as many); more follow';
  add(
    program,
    'sandbox',
    'serve a made-up network, for trying things out',
    loadSandbox,
  )
    .option(
      '--host <host>',
      'where to listen; 0.0.0.0: on all addresses',
      '127.0.0.1',
    )
    .option(
      '--port <port>',
      'its port (0: a free one)',
      wholeNumber(0, 65_535),
      8090,
    )
    .option('--parties <n>', parties, wholeNumber(1, 10_000_000), 200)
    .option('--entries <n>', entries, wholeNumber(0, 1_000_000_000), 50_000)
    .option(
      '--seed <seed>',
      'the same seed and first start give the same network',
      'sandbox',
    )
    .addOption(
      new Option(
        '--release <name>',
        'whose exports it serves: columns, filters and order',
      )
        .choices(RELEASE_NAMES)
        .default('0.71.4'),
    );
}

function wholeNumber(min: number, max: number): (text: string) => number {
  const { parse, accepted } = integer(min, max);
  return (text) => {
    const value = parse(text);
    if (value === undefined)
      throw new InvalidArgumentError(`Give ${accepted}.`);
    return value;
  };
}
