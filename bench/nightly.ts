/**
 * What a night costs whose parties are nearly all idle: `npm run bench nightly [--quick]`. The first night brings
 * everything; the second, an hour of the network later, is measured: requests and seconds for each idle party.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { handleJob } from '../src/worker/registry.ts';
import { enqueueRun } from '../src/runs/enqueue.ts';
import { openApp, type App } from '../src/app/app.ts';
import { readConfig } from '../src/config/environment.ts';
import { createLog } from '../src/core/log.ts';
import { QUEUE_NAMES } from '../src/queue/queues.ts';
import type { Run } from '../src/runs/store/run-store.ts';
import { startSource } from './lists-bench.ts';

const PARTIES = process.argv.includes('--quick') ? 200 : 2_000;
/** How far the network moves between the two nights: some twenty parties are active meanwhile. */
const PASSED_MS = 900_000;
const POLL_MS = 100;

const dataDir = await mkdtemp(join(tmpdir(), 'ledger-mirror-bench-'));
await using stack = new AsyncDisposableStack();
stack.defer(() => rm(dataDir, { recursive: true, force: true }));
await using sandbox = await startSource(PARTIES, 0);

async function night(app: App): Promise<{ run: Run; seconds: number }> {
  const startMs = performance.now();
  const { runId } = await app.jobs.runs.create({ kind: 'nightly', subject: 'bench' });
  const created = await app.jobs.runs.get(runId);
  if (created === undefined) throw new Error('the run is gone');
  await enqueueRun(created, app.jobs);
  for (;;) {
    const run = await app.jobs.runs.get(runId);
    if (run?.state === 'done') return { run, seconds: (performance.now() - startMs) / 1000 };
    await sleep(POLL_MS);
  }
}

const env = { SOURCE_URL: sandbox.url.href, DATA_DIR: dataDir, SOURCE_RATE: '100000', LOG_LEVEL: 'warn' };
const config = readConfig({ env, cwd: dataDir });
const signal = new AbortController().signal;
const app = stack.use(await openApp({ config, log: createLog('warn'), signal }));
for (const queue of QUEUE_NAMES) {
  app.queues.work(queue, 2, (job, jobSignal) => handleJob(job, app.jobs, jobSignal));
}
const first = await night(app);
await sandbox.advance(PASSED_MS);
const second = await night(app);

const { rows } = await app.warehouse.pool.query<{ parties: bigint; active: bigint; seconds: number }>(
  `select count(*) as parties, count(*) filter (where (outcome->>'rows')::bigint > 0) as active,
     extract(epoch from max(n.updated_at) - (select max(finished_at) from mirror.runs w where w.parent_run_id = r.run_id and w.kind = 'sync'))::float8 as seconds
   from mirror.nightly_units n join mirror.runs r using (run_id) where run_id = $1 group by r.run_id`,
  [second.run.runId],
);
const [units] = rows;
const source = second.run.evidence['source'] as { requests: { lists: number; exports: number } };
const parties = Number(units?.parties ?? 0);
const line = (what: string, value: string, wanted = ''): void => {
  process.stdout.write(`| ${what} | ${value} | ${wanted} |\n`);
};
line(`first night of ${PARTIES} parties`, `${first.run.verdict}, ${first.seconds.toFixed(1)} s`);
line(
  'second night',
  `${second.run.verdict}, ${second.seconds.toFixed(1)} s, ${units?.active} of ${parties} parties active`,
);
line('its list requests', `${source.requests.lists}`, 'a few');
line('its exports for each party', (source.requests.exports / parties).toFixed(3), 'near 1');
line('seconds for each party, the source’s own time with it', ((units?.seconds ?? 0) / parties).toFixed(4));
