/**
 * `demo`: the whole of it with nothing installed and nothing configured: a sandbox network is served,
 * mirrored, verified and asked. Its data lie in DATA_DIR/demo, so that a real run is not disturbed.
 */
import { once } from 'node:events';
import { basename, join } from 'node:path';
import { openApp, type App } from '../../../app/app.ts';
import { passwordFileOf } from '../../../app/data-dir.ts';
import { startApi } from '../../../app/serving/serve.ts';
import type { Config } from '../../../config/environment.ts';
import { errorCode, UsageError } from '../../../core/errors.ts';
import { makeFolders } from '../../../core/folders.ts';
import { worst } from '../../../core/verdict.ts';
import { runDocument } from '../../../runs/run-document.ts';
import { exitCodeOf, type CommandContext, type CommandResult } from '../../context.ts';
import { followRun, startNight, verifyHere } from '../../follow.ts';
import { formatDuration } from '../../output/format.ts';
import { runSummary } from '../../output/run-text.ts';
import { answer, type Say } from './answers.ts';
import { demoConfig, startNetwork } from './network.ts';
import { COMMAND, commandOn, near } from '../../typed.ts';

export async function demo(
  { keep: isKept }: { readonly keep: boolean },
  given: CommandContext,
): Promise<CommandResult> {
  const startedMs = performance.now();
  const dataDir = demoFolder(given.config);
  await makeFolders(dataDir);
  await using sandbox = await startNetwork(dataDir);
  const context = { ...given, config: demoConfig(given.config, dataDir, sandbox.url) };
  // With --json stdout belongs to the document.
  const out = context.isJson ? context.stderr : context.stdout;
  const say: Say = (text) => void out.write(`${text}\n`);
  await using app = await openDemo(context);
  // Sooner than after a minute of work: its port may be taken.
  await using api = isKept ? await startApi(app) : undefined;
  say(`A sandbox network is served at ${sandbox.url}; its mirror lies in ${dataDir}.`);
  const nightly = await followRun(app, await startNight(app, 'demo', context), context);
  say(runSummary(runDocument(nightly), commandOn(dataDir)).trimEnd());
  const verified = await verifyHere(app, { deep: true }, context);
  say(runSummary(runDocument(verified), commandOn(dataDir)).trimEnd());
  const answers = await answer(app, context, say);
  const verdict = worst([nightly.verdict ?? 'failed', verified.verdict ?? 'failed']);
  const tookMs = Math.round(performance.now() - startedMs);
  say(describeEnd(verdict, tookMs, isKept, dataDir));
  if (api !== undefined) await keepOpen(app, api.url, context.signal, say);
  return {
    exitCode: exitCodeOf(verdict, nightly.evidence),
    document: { verdict, nightly: runDocument(nightly), verify: runDocument(verified), answers, tookMs },
  };
}

async function openDemo(context: CommandContext): Promise<App> {
  const { dataDir } = context.config;
  try {
    return await openApp(context);
  } catch (error) {
    if (errorCode(error) !== 'DATABASE_OLDER') throw error;
    throw new UsageError([
      `Cannot use the demo in ${dataDir}: an earlier version made it; remove it with 'rm -rf ${near(dataDir)}'`,
    ]);
  }
}

/** Whoever copies `DATA_DIR=data/demo` from a page means the demo's own folder, not one below it. */
function demoFolder({ dataDir }: Config): string {
  return basename(dataDir) === 'demo' ? dataDir : join(dataDir, 'demo');
}

async function keepOpen(app: App, url: string, signal: AbortSignal, say: Say): Promise<void> {
  await app.jobWorker.startAndRegister();
  const { hostname, port, username, pathname } = new URL(app.databaseUrl);
  const client = `psql --host=${hostname} --port=${port} --username=${username} ${pathname.slice(1)}`;
  say(`SQL, in schema mirror: PGPASSWORD="$(cat '${near(passwordFileOf(app.config))}')" ${client}`);
  say(`The console is open at ${url} — Ctrl-C ends it.`);
  if (!signal.aborted) await once(signal, 'abort');
}

function describeEnd(verdict: string, tookMs: number, isKept: boolean, dataDir: string): string {
  const isComplete = verdict === 'complete';
  return [
    '',
    `${isComplete ? 'Done' : 'Ended'}: verdict ${verdict}, in ${formatDuration(tookMs)}.`,
    isComplete
      ? 'Every row that the network lists and every entry of its ledgers is in the mirror, and every sum agrees.'
      : 'The evidence above says what is missing.',
    '',
    'Next:',
    `  what can be asked:                ${commandOn(dataDir)} query --list`,
    `  a question of your own:           ${commandOn(dataDir)} query "select count(*) from entries"`,
    ...(isKept ? [] : [`  the same, with the console open:  ${commandOn(dataDir)} demo --keep`]),
    `  a real service:                   SOURCE_URL=https://… ${COMMAND} nightly`,
    `  forget the demo:                  rm -rf '${dataDir}'`,
    '',
  ].join('\n');
}
