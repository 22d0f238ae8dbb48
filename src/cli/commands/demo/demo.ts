/**
 * `demo`: the whole of it with nothing installed and nothing configured: a sandbox network is served,
 * mirrored, verified and asked. Its data lie in DATA_DIR/demo, so that a real run is not disturbed.
 */
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { createServer } from 'node:net';
import { basename, join } from 'node:path';
import { portUnusable } from '../../../api/http/listen.ts';
import { openApp, type App } from '../../../app/app.ts';
import { sqlAddress } from '../../../app/doctor/sql-address.ts';
import { startApi } from '../../../app/serving/serve.ts';
import type { Config } from '../../../config/environment.ts';
import { worst } from '../../../core/verdict.ts';
import { runDocument } from '../../../runs/run-document.ts';
import { exitCodeOf, type CommandContext, type CommandResult } from '../../context.ts';
import { followRun } from '../../follow/follow.ts';
import { startNight, verifyHere } from '../../follow/start.ts';
import { runSummary } from '../../output/summary.ts';
import { answer } from './answers.ts';
import { demoConfig, startNetwork } from './network.ts';
import { commandOn, near } from '../../typed.ts';
import { ledgersOf, say, summary } from './say.ts';

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
  const nightly = await followRun(app, await startNight(app, 'demo', demoContext), demoContext);
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
