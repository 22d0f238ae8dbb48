/**
 * Measures how fast on-demand exports of single parties are carried out when there are
 * many parties: `npm run bench -- orders [PARTIES] [RATE]`. It orders a thousand idle
 * parties over HTTP, as fast as the read API accepts them. `RATE` is the source's rate.
 */
import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { openApp } from '../src/app/app.ts';
import { startApi } from '../src/app/serving/serve.ts';
import { readConfig } from '../src/config/environment.ts';
import { createLog } from '../src/logging/log.ts';
import { addIdleLedgers } from '../test/support/mirror-arrange.ts';
import { startSource } from './world/lists-bench.ts';
import { atMost, sayLoad, sayNumber } from './world/report.ts';
import { givenNumbers, openFolder } from './world/scratch-world.ts';

const [PARTIES = 100_000, RATE = 10] = givenNumbers();
const ORDERS = process.argv.includes('--quick') ? 200 : 1_000;
const RETRY_MS = 100;
/** Maximum duration of all orders, in proportion to their number. */
const SECONDS_MAX = (120 * ORDERS) / 1_000;

function idle(index: number): string {
  return createHash('sha256').update(`idle ${index}`).digest('hex');
}

await using stack = new AsyncDisposableStack();
const dataDir = await openFolder(stack);
const source = stack.use(await startSource(20, 0));
const env = {
  SOURCE_URL: source.url.href,
  DATA_DIR: dataDir,
  SOURCE_RATE: `${RATE}`,
  API_PORT: '0',
};
const config = readConfig({ env, cwd: dataDir });
const app = stack.use(
  await openApp({
    config,
    log: createLog('warn'),
    signal: new AbortController().signal,
  }),
);
await addIdleLedgers(
  app.warehouse.pool,
  Array.from({ length: PARTIES }, (_, index) => idle(index)),
);
await app.warehouse.pool.query('analyze');
await app.jobWorker.startAndRegister();
const { url } = stack.use(await startApi(app));

/**
 * Orders a party. The API accepts as many open orders as its limit allows, and then one
 * more whenever one has ended.
 */
async function order(partyId: string): Promise<void> {
  for (;;) {
    const response = await fetch(`${url}/mirror/exports`, {
      method: 'POST',
      body: JSON.stringify({ partyId }),
      headers: { 'content-type': 'application/json' },
    });
    await response.arrayBuffer();
    if (response.status === 202) return;
    if (response.status !== 429)
      throw new Error(`an order was answered ${response.status}`);
    await sleep(RETRY_MS);
  }
}

async function complete(): Promise<number> {
  const { rows } = await app.warehouse.pool.query<{ count: string }>(
    `select count(*)::text as count from mirror.runs where kind = 'export' and verdict = 'complete'`,
  );
  return Number(rows[0]?.count);
}

sayLoad('before');
const startedMs = performance.now();
for (let at = 0; at < ORDERS; at += 1)
  await order(idle(at * Math.floor(PARTIES / ORDERS)));
while ((await complete()) < ORDERS) await sleep(RETRY_MS);
const seconds = (performance.now() - startedMs) / 1_000;
sayNumber(
  `${ORDERS} orders of idle parties among ${PARTIES}, ${RATE} requests a second`,
  seconds,
  `${seconds.toFixed(1)} s, ${(ORDERS / seconds).toFixed(1)} orders/s`,
  atMost(SECONDS_MAX, ' s'),
);
sayLoad('after');
