/**
 * `demo`: the whole of it with nothing installed and nothing configured: a sandbox network is served,
 * mirrored, verified and asked. Its data lie in DATA_DIR/demo, so that a real run is not disturbed.
 */
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { createServer } from 'node:net';
import { basename, join, relative } from 'node:path';
import { Writable } from 'node:stream';
import { z } from 'zod';
import { openApp, type App } from '../../../app/app.ts';
import { portUnusable } from '../../../api/http/listen.ts';
import { startApi } from '../../../app/serve.ts';
import type { Config } from '../../../config/environment.ts';
import { DAY_MICROS, floorSecond, nowMicros } from '../../../core/time.ts';
import { worst } from '../../../core/verdict.ts';
import { sqlAddress } from '../../../app/doctor/sql-address.ts';
import { openLake, type Lake } from '../../../lake/query/lake.ts';
import { inquiry, readyQuestion } from '../../../lake/query/questions.ts';
import { runQuery } from '../../../lake/query/query.ts';
import { keptGenesis } from './kept-genesis.ts';
import { startSandbox, type Sandbox } from '../../../sandbox/http/server.ts';
import type { Run } from '../../../runs/store/run.ts';
import { exitCodeOf, type CommandContext, type CommandResult } from '../../context.ts';
import { followRuns, startNight, verifyHere } from '../../follow.ts';
import { formatCount, formatDuration } from '../../output/format.ts';
import { runSummary } from '../../output/summary.ts';
import { formatTable, type Cell } from '../../output/table.ts';
import { runDocument } from '../../../runs/run-document.ts';

const PARTIES = 150;
const ENTRIES_MEAN = 300;
/** Three months at least, so that what is told by month has several. */
const HISTORY_DAYS = 75;
/** The demo's source is on this machine and its own: nobody is to be spared. */
const RATE_PER_SECOND = 1_000;
const EXPORTS_AT_ONCE = 2;
const QUESTIONS = [
  { name: 'top-parties', asks: 'Who moved the most?', rowsShown: 5 },
  { name: 'daily-flows', asks: 'What moved each day?', rowsShown: 5 },
  { name: 'cadence', asks: 'How regular are the checkpoints?', rowsShown: 5 },
] as const;

export async function demo(
  options: { readonly keep: boolean },
  context: CommandContext,
): Promise<CommandResult> {
  const startedMs = performance.now();
  const dataDir = demoFolder(context.config);
  if (options.keep) await refuseTakenPort(context.config);
  await mkdir(dataDir, { recursive: true });
  await using sandbox = await startNetwork(dataDir);
  const demoContext = { ...context, config: demoConfig(context.config, dataDir, sandbox.url) };
  say(context, `A sandbox network is served at ${sandbox.url}; its mirror lies in ${dataDir}.`);
  await using app = await openApp(demoContext);
  const run = await startNight(app, 'demo', demoContext);
  const [nightly] = await followRuns(app, [run], demoContext);
  if (nightly === undefined) throw new Error(`run ${run.runId} ended without a record`);
  const command = commandOn(dataDir);
  say(context, runSummary(runDocument(nightly), command).trimEnd());
  const verified = await verifyHere(app, { isDeep: true }, demoContext, () => undefined);
  say(context, runSummary(runDocument(verified), command).trimEnd());
  const answers = await answer(app, demoContext);
  const verdict = worst([nightly.verdict ?? 'failed', verified.verdict ?? 'failed']);
  const tookMs = performance.now() - startedMs;
  say(context, summary(verdict, tookMs, ledgersOf(nightly), options.keep, dataDir));
  if (options.keep) await keepOpen(app, demoContext);
  return {
    exitCode: exitCodeOf(verdict, nightly.evidence),
    document: {
      verdict,
      nightly: runDocument(nightly),
      verify: runDocument(verified),
      answers,
      tookMs: Math.round(tookMs),
    },
  };
}

/** Whoever copies `DATA_DIR=data/demo` from a page means the demo's own folder, not one below it. */
function demoFolder({ dataDir }: Config): string {
  return basename(dataDir) === 'demo' ? dataDir : join(dataDir, 'demo');
}

/** The same network at every run in this checkout, grown by the time that has passed. */
async function startNetwork(dataDir: string): Promise<Sandbox> {
  const genesis = await keptGenesis(
    join(dataDir, 'sandbox.json'),
    floorSecond(nowMicros()) - BigInt(HISTORY_DAYS) * DAY_MICROS,
  );
  return startSandbox({
    seed: 'demo',
    release: '0.73',
    parties: PARTIES,
    entriesMean: ENTRIES_MEAN,
    historyMs: HISTORY_DAYS * 86_400_000,
    checkpointIntervalMs: 3_600_000,
    genesis,
    clock: nowMicros,
    rateLimit: 'none',
  });
}

/** Every configured URL is ignored: the demo touches nothing but its own folder. */
function demoConfig(config: Config, dataDir: string, sandboxUrl: string): Config {
  return {
    ...config,
    dataDir,
    sourceUrl: new URL(sandboxUrl),
    sourceAuthorization: undefined,
    sourceRate: RATE_PER_SECOND,
    sourceExportConcurrency: EXPORTS_AT_ONCE,
    sourcePageSize: 100,
    sourceAssets: undefined,
    databaseUrl: undefined,
    redisUrl: undefined,
    objectStoreUrl: undefined,
    notifyUrl: undefined,
    nightlyParties: { kind: 'all' },
    nightlyExportsMax: undefined,
    ambient: {},
  };
}

async function answer(app: App, context: CommandContext): Promise<Readonly<Record<string, unknown>>> {
  await using lake = await openLake(
    { objects: app.store, scratchDir: join(context.config.dataDir, 'scratch') },
    context.signal,
  );
  const answers: Record<string, unknown> = {};
  for (const { name, asks, rowsShown } of QUESTIONS) {
    const rows = await ask(lake, name, context);
    say(context, `\n${asks}  (query ${name})`);
    say(context, answerTable(rows, rowsShown, context.stdout.columns));
    answers[name] = rows;
  }
  return answers;
}

const answerDocument = z.object({
  rows: z.array(z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()]))),
});
type AnswerRows = z.output<typeof answerDocument>['rows'];

async function ask(lake: Lake, name: string, context: CommandContext): Promise<AnswerRows> {
  const question = readyQuestion(name);
  if (question === undefined) throw new RangeError(`no such question: ${name}`);
  const { sql, parameters } = inquiry(question);
  const chunks: string[] = [];
  const output = new Writable({
    decodeStrings: false,
    write: (chunk: string | Buffer, _encoding, done) => {
      chunks.push(chunk.toString());
      done();
    },
  });
  await runQuery(lake, sql, { format: 'json', parameters }, output, context.signal);
  return answerDocument.parse(JSON.parse(chunks.join(''))).rows;
}

/** Ids are cut to what tells them apart: `query` shows them whole. */
function answerTable(rows: AnswerRows, rowsMax: number, columns: number | undefined): string {
  const header = Object.keys(rows[0] ?? {});
  const short = (cell: AnswerRows[number][string] | undefined): Cell => {
    // Numbers as `query` writes them: whether one comes as a number or as text says nothing to a reader.
    if (typeof cell !== 'string') return typeof cell === 'number' ? String(cell) : cell;
    return /^[0-9a-f]{64}$/.test(cell) ? `${cell.slice(0, 8)}…` : cell;
  };
  const cells = rows.map((row) => header.map((name) => short(row[name])));
  return formatTable(header, cells, { rowsMax, columns }).trimEnd();
}

/** Whose ledgers the night asked for. */
function ledgersOf({ evidence }: Run): number {
  const asked = z.object({ exports: z.object({ parties: z.number() }) }).safeParse(evidence);
  return asked.success ? asked.data.exports.parties : 0;
}

/** As it is typed in a shell, for the mirror in this folder. */
function commandOn(dataDir: string): string {
  return `DATA_DIR='${near(dataDir)}' npx ledger-mirror`;
}

/** A path as it is typed where the demo was started. */
function near(path: string): string {
  const fromHere = relative(process.cwd(), path) || '.';
  return fromHere.startsWith('..') ? path : fromHere;
}

function summary(verdict: string, tookMs: number, ledgers: number, isKept: boolean, dataDir: string): string {
  const isComplete = verdict === 'complete';
  return [
    '',
    `${isComplete ? 'Done' : 'Ended'}: verdict ${verdict}, in ${formatDuration(tookMs)}.`,
    ...(isComplete
      ? [
          `Every row that the network lists and every entry of ${formatCount(ledgers)} ledgers is in the mirror, and every sum agrees.`,
        ]
      : ['The evidence above says what is missing.']),
    '',
    'Next:',
    `  what can be asked:                ${commandOn(dataDir)} query --list`,
    `  a question of your own:           ${commandOn(dataDir)} query "select count(*) from ledger_entries"`,
    ...(isKept ? [] : [`  the same, with the console open:  ${commandOn(dataDir)} demo --keep`]),
    '  a real service:                   SOURCE_URL=https://… npx ledger-mirror nightly',
    `  forget the demo:                  rm -rf '${dataDir}'`,
    '',
  ].join('\n');
}

async function keepOpen(app: App, context: CommandContext): Promise<void> {
  await app.jobWorker.startAndRegister();
  await using api = await startApi(app);
  const { host, port, user, database, passwordFile } = sqlAddress(app.databaseUrl, app.config.dataDir);
  const client = `psql --host=${host} --port=${port} --username=${user} ${database}`;
  say(context, `SQL, in schema mirror: PGPASSWORD="$(cat '${near(passwordFile)}')" ${client}`);
  say(context, `The console is open at ${api.url} — Ctrl-C ends it.`);
  if (!context.signal.aborted) await once(context.signal, 'abort');
}

/** Sooner than after a minute of work. */
async function refuseTakenPort({ apiHost: host, apiPort: port }: Config): Promise<void> {
  const trial = createServer();
  try {
    await once(trial.listen({ host, port }), 'listening');
  } catch (error) {
    throw portUnusable(host, port, error);
  } finally {
    trial.close();
  }
}

/** With --json stdout belongs to the document. */
function say({ isJson, stdout, stderr }: CommandContext, text: string): void {
  (isJson ? stderr : stdout).write(`${text}\n`);
}
