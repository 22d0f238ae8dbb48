/**
 * `demo`: shows the whole product without any setup. It serves a sandbox network, mirrors
 * it, verifies the mirror and queries it. Its data is stored in DATA_DIR/demo, so it does
 * not interfere with a real mirror.
 */
import { once } from 'node:events';
import { basename, join } from 'node:path';
import { PassThrough, type Writable } from 'node:stream';
import { json as readJson } from 'node:stream/consumers';
import { openApp, type App } from '../../app/app.ts';
import { passwordFileOf } from '../../app/data-dir.ts';
import { startApi } from '../../app/serving/serve.ts';
import {
  changeSettings,
  type Config,
  knownAssets,
} from '../../config/environment.ts';
import { errorCode, UsageError } from '../../errors/errors.ts';
import { makeFolders } from '../../files/folders.ts';
import { DAY_MICROS, floorSecond, nowMicros } from '../../time/time.ts';
import { worst } from '../../errors/verdict.ts';
import { openLake } from '../../lake/query/lake.ts';
import { type QueryFormat, runQuery } from '../../lake/query/query.ts';
import { inquiry, READY_QUESTIONS } from '../../lake/query/questions.ts';
import { describeRun } from '../../runs/run-document.ts';
import { unitsById } from '../../ledger/assets.ts';
import { startSandbox, type Sandbox } from '../../sandbox/http/server.ts';
import { exitCodeOf, type CommandContext, type Handler } from '../context.ts';
import { followRun, startNight, verifyHere } from '../follow.ts';
import { formatCount, formatDuration } from '../../format/format.js';
import { runSummary } from '../output/run-text.ts';
import { COMMAND, commandOn, near } from '../command-name.ts';
import { keptGenesis } from './sandbox.ts';

const PARTIES = 150;
const ENTRIES_MEAN = 300;
/**
 * The history spans at least three calendar months, so that monthly figures have several
 * rows.
 */
const HISTORY_DAYS = 75;
const QUESTIONS = new Map([
  ['top-parties', 'Who has the most entries?'],
  ['daily-flows', 'What moved each day?'],
  ['cadence', 'How regular are the checkpoints?'],
]);
const ROWS_SHOWN_MAX = 5;

export const demo: Handler<{ keep: boolean }> = async (
  { keep: isKept },
  given,
) => {
  const startedMs = performance.now();
  // `DATA_DIR=data/demo`, copied from the docs, means the demo's own folder, not a
  // subfolder of it.
  const { dataDir: parent } = given.config;
  const dataDir = basename(parent) === 'demo' ? parent : join(parent, 'demo');
  await makeFolders(dataDir);
  await using sandbox = await startNetwork(dataDir);
  const context = {
    ...given,
    config: demoConfig(given.config, dataDir, sandbox.url),
  };
  // With --json, stdout is reserved for the document.
  const out = context.isJson ? context.stderr : context.stdout;
  const say = (text: string) => out.write(`${text}\n`);
  await using app = await openDemo(context);
  // Start the API before the work rather than a minute later, so that a port conflict
  // shows up at once.
  await using api = isKept ? await startApi(app) : undefined;
  say(
    `A sandbox network is served at ${sandbox.url}; its mirror is stored in ${dataDir}.`,
  );
  const night = await followRun(
    app,
    await startNight(app, 'demo', context),
    context,
  );
  const nightly = describeRun(night);
  out.write(runSummary(nightly, commandOn(dataDir)));
  const verified = await verifyHere(app, { deep: true }, context);
  const verify = describeRun(verified);
  out.write(runSummary(verify, commandOn(dataDir)));
  const answers = await answer(app, context, out);
  const verdict = worst([
    night.verdict ?? 'failed',
    verified.verdict ?? 'failed',
  ]);
  const tookMs = Math.round(performance.now() - startedMs);
  say(describeEnd(verdict, tookMs, isKept, dataDir));
  if (api !== undefined) {
    await app.jobWorker.startAndRegister();
    say(`SQL, in schema mirror: ${clientCommand(app)}`);
    say(`The console is open at ${api.url} — Ctrl-C ends it.`);
    if (!context.signal.aborted) await once(context.signal, 'abort');
  }
  const document = { verdict, nightly, verify, answers, tookMs };
  return { exitCode: exitCodeOf(verdict, night.evidence), document };
};

/**
 * Serves the same network on every run in this checkout; the network keeps growing as
 * time passes.
 */
async function startNetwork(dataDir: string): Promise<Sandbox> {
  const fresh = floorSecond(nowMicros()) - BigInt(HISTORY_DAYS) * DAY_MICROS;
  return startSandbox({
    seed: 'demo',
    release: '0.73',
    parties: PARTIES,
    entriesMean: ENTRIES_MEAN,
    historyMs: HISTORY_DAYS * 86_400_000,
    checkpointIntervalMs: 3_600_000,
    genesis: await keptGenesis(join(dataDir, 'sandbox.json'), fresh),
    clock: nowMicros,
    rateLimit: 'none',
  });
}

/**
 * Returns the demo's settings. Every configured URL is ignored, so the demo touches only
 * its own folder.
 */
function demoConfig(
  config: Config,
  dataDir: string,
  sourceUrl: string,
): Config {
  const changed = changeSettings(config, {
    dataDir,
    sourceUrl,
    sourceAuthorization: undefined,
    // The source belongs to the demo and runs on this machine, so no rate limit is
    // needed.
    sourceRate: '1000',
    sourceExportConcurrency: '2',
    sourcePageSize: '100',
    sourceAssets: undefined,
    sourceHeaders: undefined,
    sourceClientCert: undefined,
    sourceClientKey: undefined,
    databaseUrl: undefined,
    redisUrl: undefined,
    objectStoreUrl: undefined,
    notifyUrl: undefined,
    nightlyParties: 'all',
    nightlyExportsMax: undefined,
  });
  return { ...changed, ambient: {} };
}

async function openDemo(context: CommandContext): Promise<App> {
  const { dataDir } = context.config;
  try {
    return await openApp(context);
  } catch (error) {
    if (errorCode(error) !== 'DATABASE_OLDER') throw error;
    throw new UsageError([
      `Cannot use the demo in ${dataDir}: it was created by an earlier ` +
        `version; remove it with 'rm -rf ${near(dataDir)}'`,
    ]);
  }
}

/**
 * Runs the demo's questions and shows the first rows of each result.
 * @returns all rows of each result, by the name of the question
 */
async function answer(
  { lake: access, config }: App,
  { signal, stdout }: CommandContext,
  out: Writable,
) {
  await using lake = await openLake(access, signal);
  const units = unitsById(knownAssets(config));
  const answers: Record<string, unknown> = {};
  for (const question of READY_QUESTIONS.filter(({ name }) =>
    QUESTIONS.has(name),
  )) {
    const { name } = question;
    const { sql, parameters } = inquiry(question);
    const ask = (statement: string, format: QueryFormat, output: Writable) =>
      runQuery(
        lake,
        statement,
        { format, parameters, units, widthMax: stdout.columns },
        output,
        signal,
      );
    out.write(`\n${QUESTIONS.get(name)}  (query ${name})\n`);
    await ask(`${sql} limit ${ROWS_SHOWN_MAX}`, 'table', out);
    const output = new PassThrough();
    const sent = ask(sql, 'json', output).finally(() => output.end());
    const [document] = await Promise.all([readJson(output), sent]);
    const { rows } = document as { readonly rows: readonly unknown[] };
    if (rows.length > ROWS_SHOWN_MAX) {
      const all = formatCount(rows.length);
      out.write(`These are the first ${ROWS_SHOWN_MAX} of ${all} rows.\n`);
    }
    answers[name] = rows;
  }
  return answers;
}

/** Returns the command that opens the demo's database in `psql`. */
function clientCommand({ databaseUrl, config }: App): string {
  const { hostname, port, username, pathname } = new URL(databaseUrl);
  const client =
    `psql --host=${hostname} --port=${port} --username=${username} ` +
    pathname.slice(1);
  return `PGPASSWORD="$(cat '${near(passwordFileOf(config))}')" ${client}`;
}

function describeEnd(
  verdict: string,
  tookMs: number,
  isKept: boolean,
  dataDir: string,
): string {
  const isComplete = verdict === 'complete';
  return [
    '',
    `${isComplete ? 'Done' : 'Ended'}: verdict ${verdict}, in ${formatDuration(tookMs)}.`,
    isComplete
      ? 'Every row that the network lists and every entry of its ledgers is in the ' +
        'mirror, and every sum agrees.'
      : 'The evidence above says what is missing.',
    '',
    'Next:',
    `  what can be asked:                ${commandOn(dataDir)} query --list`,
    `  a question of your own:           ${commandOn(dataDir)} query "select ` +
      'count(*) from entries"',
    ...(isKept
      ? []
      : [
          `  the same, with the console open:  ${commandOn(dataDir)} demo --keep`,
        ]),
    `  a real service:                   SOURCE_URL=https://… ${COMMAND} nightly`,
    `  forget the demo:                  rm -rf '${dataDir}'`,
    '',
  ].join('\n');
}
