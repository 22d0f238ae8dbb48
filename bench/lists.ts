/**
 * Measures how fast lists are synced, as ratios within one run: against a one-way loop
 * that stores nothing, and against one that inserts row by row. A first sync reads its
 * list twice: one reading is compared with the loop that stores nothing, and the whole
 * sync with the loop that inserts. `npm run bench -- lists [--quick] [latency] [speed]
 * [far] [million] [polite]`; everything takes about six minutes, `latency` alone takes
 * one, `far` three.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import {
  emptyMirror,
  fetchAndInsert,
  fetchOnly,
  openLists,
  PAGE_ROWS,
  startSource,
  syncParties,
} from './world/lists-bench.ts';
import { PRODUCT_FLAGS } from './world/product-flags.ts';
import { atLeast, atMost, between, say, sayNumber } from './world/report.ts';
import { median, openScratchWarehouse } from './world/scratch-world.ts';

const isQuick = process.argv.includes('--quick');
const PARTIES = isQuick ? 50_000 : 200_000;
const MANY_PARTIES = isQuick ? 200_000 : 1_000_000;
const ROUNDS = isQuick ? 3 : 5;
/** A distant source takes so long that fewer pages have to suffice. */
const FAR = { parties: isQuick ? 50_000 : 100_000, rounds: 3 };
const ROW_BY_ROW_ROWS = 5_000;

await using stack = new AsyncDisposableStack();
const { connectionString, warehouse } = await openScratchWarehouse(stack);

async function rate(work: () => Promise<number>): Promise<number> {
  const startMs = performance.now();
  const rows = await work();
  return (rows * 1000) / (performance.now() - startMs);
}

/** How many parties a comparison reads, and how often. */
interface Size {
  readonly parties: number;
  readonly rounds: number;
}

async function compare(
  latencyMs: number,
  ratioMin: number,
  { parties, rounds }: Size = { parties: PARTIES, rounds: ROUNDS },
): Promise<void> {
  await using sandbox = await startSource(parties, latencyMs);
  await using source = openLists(sandbox.url);
  const fetched: number[] = [];
  const perReading: number[] = [];
  const whole: number[] = [];
  await fetchOnly(source);
  for (let round = 0; round < rounds; round += 1) {
    fetched.push(await rate(() => fetchOnly(source)));
    await emptyMirror(warehouse);
    let readings = 1;
    const synced = await rate(async () => {
      const sync = await syncParties(source, warehouse);
      readings = sync.readings;
      return sync.rows;
    });
    whole.push(synced);
    perReading.push(synced * readings);
  }
  const name = `${parties} parties, ${latencyMs} ms latency`;
  say(
    `${name}: one-way loop that only fetches`,
    `${Math.round(median(fetched))} rows/s`,
  );
  say(
    `${name}: each reading of a sync`,
    `${Math.round(median(perReading))} rows/s`,
  );
  const ratios = perReading.map(
    (value, round) => value / (fetched[round] ?? Number.NaN),
  );
  sayNumber(
    `${name}: a reading of a sync / loop`,
    median(ratios),
    median(ratios).toFixed(2),
    atLeast(ratioMin),
  );
  if (latencyMs > 0) return;
  await emptyMirror(warehouse);
  const single = await rate(() =>
    fetchAndInsert(source, warehouse, ROW_BY_ROW_ROWS),
  );
  say(`${name}: loop that inserts row by row`, `${Math.round(single)} rows/s`);
  const gain = median(whole) / single;
  sayNumber(`${name}: sync / row by row`, gain, gain.toFixed(1), atLeast(10));
}

async function many(): Promise<void> {
  await using sandbox = await startSource(MANY_PARTIES, 0);
  await emptyMirror(warehouse);
  const script = fileURLToPath(new URL('lists/worker.ts', import.meta.url));
  const child = spawn(
    process.execPath,
    [...PRODUCT_FLAGS, script, sandbox.url.href, connectionString],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  await once(child, 'close');
  const worker = JSON.parse(output) as {
    rows: number;
    peakMb: number;
    rowsPerSecond: number;
    lastToFirst: number;
  };
  say(
    `${MANY_PARTIES} parties: sync`,
    `${Math.round(worker.rowsPerSecond)} rows/s`,
  );
  sayNumber(
    `${MANY_PARTIES} parties: peak memory of the worker`,
    worker.peakMb,
    `${worker.peakMb.toFixed(0)} MB`,
    atMost(150, ' MB'),
  );
  sayNumber(
    `${MANY_PARTIES} parties: last tenth / first tenth`,
    worker.lastToFirst,
    worker.lastToFirst.toFixed(2),
    between(0.8, 1.2),
  );
  await using source = openLists(sandbox.url);
  await warehouse.pool.query('vacuum analyze mirror.parties');
  // Adds exactly one page of new rows.
  await sandbox.advance(
    Math.floor((7 * 86_400_000 * (PAGE_ROWS - 1)) / MANY_PARTIES),
  );
  const startMs = performance.now();
  const increment = await syncParties(source, warehouse);
  const took = `${increment.requests} requests, ${Math.round(performance.now() - startMs)} ms`;
  sayNumber(
    `increment of ${increment.newRows} in ${MANY_PARTIES}`,
    increment.requests,
    `${took}, ${increment.verdict}`,
    atMost(2, ' requests'),
  );
}

async function politely(): Promise<void> {
  const rows = 20_000;
  await using sandbox = await startSource(rows, 0);
  await using source = openLists(sandbox.url, 10);
  await emptyMirror(warehouse);
  const value = await rate(
    async () => (await syncParties(source, warehouse)).rows,
  );
  say(
    `${rows} parties at the default rate of 10 requests/s: sync`,
    `${Math.round(value)} rows/s`,
  );
}

const SECTIONS = {
  latency: () => compare(20, 0.95),
  speed: () => compare(0, 0.6),
  far: () => compare(200, 0.95, FAR),
  million: many,
  polite: politely,
};
const chosen = process.argv.slice(2).filter((word) => !word.startsWith('--'));
for (const [name, bench] of Object.entries(SECTIONS)) {
  if (chosen.length === 0 || chosen.includes(name)) await bench();
}
