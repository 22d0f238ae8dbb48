/**
 * `up`, `worker`, `serve`: the long-lived processes. They exit with 0 on SIGTERM, and
 * with 1 if a service no longer accepts their secrets.
 */
import { refuseOpenListening } from '../../api/access/hosts.ts';
import { openApp, type App } from '../../app/app.ts';
import { requireWritable } from '../../app/data-dir.ts';
import { untilStoppedOrRefused } from '../../app/rotating-secrets.ts';
import { startApi } from '../../app/serving/serve.ts';
import { serveWorkerHealth } from '../../app/serving/serve-worker-health.ts';
import { requireSource } from '../../config/environment.ts';
import { startFirstRun } from '../../runs/nightly/missed-times.ts';
import type { CommandContext, Handler } from '../context.ts';

export const up = goOn(true, true);
export const worker = goOn(true, false);
export const serve = goOn(false, true);

/** Returns a handler that runs until it is stopped. */
function goOn(isWorking: boolean, isServing: boolean): Handler {
  return async (_, context) => {
    const { config, log, signal } = context;
    if (isWorking) requireSource(config);
    // Check this first; otherwise the command would fail only after it had started a
    // database.
    if (isServing) refuseOpenListening(config.apiHost, config.apiToken);
    await requireWritable(config.dataDir);
    try {
      await runUntilStopped(isWorking, isServing, context);
    } catch (error) {
      if (!signal.aborted) throw error;
      log.info({ err: error }, 'Stopped before everything had started');
    }
    return {};
  };
}

/**
 * Opens the ports first, because a process that cannot listen must not begin any work.
 */
async function runUntilStopped(
  isWorking: boolean,
  isServing: boolean,
  context: CommandContext,
) {
  const { config, log, notices } = context;
  await using app = await openApp(context);
  await using stack = new AsyncDisposableStack();
  if (isServing) {
    const { url } = stack.use(await startApi(app));
    notices.info({ url }, 'Serving');
  }
  const { workerHealthPort: port } = config;
  if (isWorking && port !== undefined)
    stack.use(await serveWorkerHealth(app, port));
  if (isWorking) await startWork(app);
  // A process that only serves can answer most requests without the object store.
  const needed = app.neededSecrets.filter(
    ({ part }) => isWorking || part !== 'objects',
  );
  // A process that serves does not stop when the source refuses its credentials, because
  // it can still serve everything that is already mirrored.
  const canDoWithout = isServing ? (['source'] as const) : [];
  await untilStoppedOrRefused(needed, context, { canDoWithout });
  log.info({}, 'Stopping');
}

async function startWork({ config, jobWorker, jobs, log }: App): Promise<void> {
  const { schedule, scheduleTz, auditSchedule, redisUrl } = config;
  await jobWorker.startAndRegister();
  if (config.firstRun === 'now') await startFirstRun(jobs);
  const queues = redisUrl === undefined ? 'postgres' : 'redis';
  log.info({ schedule, auditSchedule, scheduleTz, queues }, 'Working');
}
