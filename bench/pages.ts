/**
 * Measures the response times of the status, the console and the API over a large mirror:
 * `npm run bench -- pages [PARTIES [ENTRIES]]`. By default it has 100,000 parties and ten
 * million entries, created in Postgres alone, which takes some minutes and 6 GB.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Pool } from 'pg';
import { fillMirror } from '../test/support/measure/large-mirror.ts';
import { openHome, runCommand, startServing } from './world/api-world.ts';
import { below, say, sayLoad, sayNumber } from './world/report.ts';
import { givenNumbers, median, openScratch } from './world/scratch-world.ts';

const [PARTIES = 100_000, ENTRIES = 10_000_000] = givenNumbers();
const ROUNDS = process.argv.includes('--quick') ? 3 : 5;
const ANSWER_MS_MAX = 200;
/** Longer than any response is cached, so that each round queries Postgres. */
const PAUSE_MS = 5_500;

await using stack = new AsyncDisposableStack();
const { folder, connectionString } = await openScratch(stack);
const home = await openHome(connectionString, folder, 'bench_pages');
await runCommand(['migrate'], home.env);
const pool = new Pool({ connectionString: home.databaseUrl });
// An idle connection fails when the server ends; that is not an error here.
pool.on('error', () => undefined);
stack.defer(() => pool.end());
const startedMs = performance.now();
const { busy, idle, runId, assetId } = await fillMirror(pool, {
  parties: PARTIES,
  entries: ENTRIES,
});
await pool.query('checkpoint');
say(
  `${PARTIES} parties, ${ENTRIES} entries: made in`,
  `${((performance.now() - startedMs) / 1_000).toFixed(0)} s`,
);

const mirror = stack.use(await startServing('serve', home.env));
const party = `/console/parties/${busy}`;
const PAGES = [
  '/mirror/status',
  '/console/events',
  '/console/lines',
  '/console/history',
  '/console/preview',
  '/console/quarantined?limit=50',
  `/console/runs/${runId}/costs`,
  '/console/parties?view=id',
  '/console/parties?view=recent',
  '/console/parties?view=id&search=abc',
  party,
  `/console/parties/${idle}`,
  `${party}/flows?asset=${assetId}`,
  `${party}/balance?asset=${assetId}&type=GENERAL`,
  `${party}/entries`,
  `${party}/entries?asset=${assetId}&type=WITHDRAW`,
  `${party}/entries?until=2023-03-10`,
  '/mirror/runs?limit=100&kind=nightly',
  `/mirror/runs/${runId}`,
  `/mirror/runs/${runId}/logs`,
  '/api/v2/parties?pagination.first=1000',
  '/api/v2/checkpoints?pagination.first=1000',
  '/metrics',
  '/readyz',
];

/** Reads until the whole answer, or the first event, has arrived. */
async function read(path: string): Promise<number> {
  const startMs = performance.now();
  const response = await fetch(`${mirror.url}${path}`);
  if (response.status !== 200)
    throw new Error(
      `${path} answered ${response.status}: ${await response.text()}`,
    );
  if (path === '/console/events') {
    const reader = response.body?.getReader();
    await reader?.read();
    const tookMs = performance.now() - startMs;
    await reader?.cancel();
    return tookMs;
  }
  await response.arrayBuffer();
  return performance.now() - startMs;
}

const times = new Map<string, number[]>(PAGES.map((path) => [path, []]));
for (let round = 0; round < ROUNDS; round += 1) {
  for (const path of PAGES) {
    // These share a reading with other paths, so wait until it has expired.
    if (path === '/console/events' || path === '/metrics')
      await sleep(PAUSE_MS);
    times.get(path)?.push(await read(path));
  }
  await sleep(PAUSE_MS);
}
for (const [path, found] of times) {
  const shown = path
    .replaceAll(/[0-9a-f]{64}/g, 'ID')
    .replaceAll(/[0-9a-f-]{36}/g, 'RUN');
  sayNumber(
    shown,
    median(found),
    `${median(found).toFixed(0)} ms, at most ${Math.max(...found).toFixed(0)} ms`,
    below(ANSWER_MS_MAX, ' ms'),
  );
}
const commands: number[] = [];
for (let round = 0; round < ROUNDS; round += 1)
  commands.push(await runCommand(['status'], home.env));
const versions: number[] = [];
for (let round = 0; round < ROUNDS; round += 1)
  versions.push(await runCommand(['--version'], home.env));
const statusMs = (median(commands) - median(versions)) * 1_000;
sayNumber(
  'the command status, less --version',
  statusMs,
  `${statusMs.toFixed(0)} ms`,
  below(ANSWER_MS_MAX, ' ms'),
);
sayLoad('after');
