/** `up`, `worker`, `serve`: the long-lived processes. They end in 0 on SIGTERM. */
import { once } from 'node:events';
import { startFirstRun } from '../../../runs/nightly/scheduled.ts';
import { openApp, type App } from '../../../app/app.ts';
import { requireWritable } from '../../../app/data-dir.ts';
import { startApi } from '../../../app/serving/serve.ts';
import { startWorkerHealth } from '../../../app/serving/worker-health.ts';
import { requireSource } from '../../../config/environment.ts';
import { refuseOpenListening } from '../../../api/access/hosts.ts';
import { EXIT, type CommandContext, type CommandResult } from '../../context.ts';

interface Parts {
  readonly worker: boolean;
  readonly api: boolean;
}

export async function up(parts: Parts, context: CommandContext): Promise<CommandResult> {
  const { config, log, signal } = context;
  if (parts.worker) requireSource(config);
  // Before anything is started: what would be refused later costs a database first.
  if (parts.api) refuseOpenListening(config.apiHost, config.apiToken);
  await requireWritable(config.dataDir);
  try {
    await runUntilStopped(parts, context);
  } catch (error) {
    if (!signal.aborted) throw error;
    log.info({ err: error }, 'Stopped before everything had started');
  }
  return { exitCode: EXIT.done };
}

/** Ports first: a process that cannot listen must not have begun to work. */
async function runUntilStopped(parts: Parts, context: CommandContext): Promise<void> {
  const { config, log, signal, stderr } = context;
  await using app = await openApp(context);
  await using stack = new AsyncDisposableStack();
  if (parts.api) {
    const api = stack.use(await startApi(app));
    log.info({ url: api.url }, 'Serving');
    if (stderr.isTTY === true) stderr.write(`Console and read API at ${api.url}\n`);
  }
  if (parts.worker) {
    if (config.workerHealthPort !== undefined)
      stack.use(await startWorkerHealth(app, config.workerHealthPort));
    await startWork(app);
  }
  if (!signal.aborted) await once(signal, 'abort');
  log.info({}, 'Stopping');
}

async function startWork(app: App): Promise<void> {
  const { schedule, scheduleTz, auditSchedule } = app.config;
  await app.jobWorker.startAndRegister();
  if (app.config.firstRun === 'now') await startFirstRun(app.jobs);
  app.log.info({ schedule, auditSchedule, scheduleTz, queues: app.queues.kind }, 'Working');
}
