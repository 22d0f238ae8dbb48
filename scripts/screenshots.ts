/**
 * Takes the pictures in docs/images: a real mirror of a sandbox network, in a browser
 * window as operators see it. The earlier nights are written into the database, because
 * nobody can wait eleven weeks for them; the mirror does everything else itself. `node
 * scripts/screenshots.ts [FOLDER]`
 */
import { mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openApp, type App } from '../src/app/app.ts';
import { startApi } from '../src/app/serving/serve.ts';
import { readConfig } from '../src/config/environment.ts';
import { createLog } from '../src/logging/log.ts';
import { DAY_MICROS, floorSecond, nowMicros } from '../src/time/time.ts';
import { startSandbox, type Sandbox } from '../test/support/sandbox.ts';
import { openPage, type ConsolePage } from '../test/api/console/browser.ts';

const IMAGES = resolve(
  process.argv[2] ?? join(import.meta.dirname, '../docs/images'),
);
const IMAGE_BYTES_MAX = 300_000;
const HISTORY_DAYS = 75;
const NIGHT_MS = 240_000;
const SETTLE_MS = 1_500;
const WHOLE = /^The mirror is complete/;

async function main(): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), 'ledger-mirror-screenshots-'));
  await using stack = new AsyncDisposableStack();
  stack.defer(() => rm(dir, { recursive: true, force: true }));
  const sandbox = stack.use(
    await startSandbox({
      seed: 'screenshots',
      parties: 240,
      entriesMean: 160,
      historyMs: HISTORY_DAYS * 86_400_000,
      genesis: floorSecond(nowMicros()) - BigInt(HISTORY_DAYS) * DAY_MICROS,
      clock: nowMicros,
      checkpointIntervalMs: 1_800_000,
      rateLimit: 'none',
    }),
  );
  const config = readConfig({
    env: {
      SOURCE_URL: sandbox.url,
      SOURCE_RATE: '1000',
      SOURCE_PAGE_SIZE: '40',
      SOURCE_EXPORT_CONCURRENCY: '3',
      DATA_DIR: dir,
      API_PORT: '0',
    },
    cwd: dir,
  });
  const stop = new AbortController();
  const app = stack.use(
    await openApp({ config, log: createLog('silent'), signal: stop.signal }),
  );
  stack.defer(() => stop.abort());
  await app.jobWorker.startAndRegister();
  const api = stack.use(await startApi(app));
  await rm(IMAGES, { recursive: true, force: true });
  await mkdir(IMAGES, { recursive: true });
  await takeAll(api.url, app, sandbox);
  await tellSizes();
}

async function takeAll(url: string, app: App, sandbox: Sandbox): Promise<void> {
  await using light = await openPage({
    colorScheme: 'light',
    reducedMotion: 'reduce',
  });
  const { page } = light;
  await page.goto(url);
  await firstNight(light, sandbox);
  await page
    .getByRole('heading', { name: WHOLE })
    .waitFor({ timeout: NIGHT_MS });
  await rememberNights(app);
  await page.goto(`${url}/runs`);
  await page.locator('.day[data-is=failed]').waitFor();
  await take(light, 'console-runs');
  await page.goto(url);
  await page.getByRole('heading', { name: WHOLE }).waitFor();
  await take(light, 'console-status');
  await data(light, url);
  await party(light, app, url);
  await phone(url);
  await attention(url, app);
}

/**
 * Pauses a night in the middle of its exports, so that the page shows a night in
 * progress.
 */
async function firstNight(view: ConsolePage, sandbox: Sandbox): Promise<void> {
  const { page } = view;
  const held = Promise.withResolvers<void>();
  let exports = 0;
  sandbox.faults.add(({ route }) => {
    if (route !== 'export') return undefined;
    exports += 1;
    return exports > 90 ? { until: held.promise } : undefined;
  });
  await page.getByRole('button', { name: 'Run now' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Start' }).click();
  await page
    .locator('#now .line', { hasText: /ledgers \d\d/ })
    .waitFor({ timeout: NIGHT_MS });
  await sleep(SETTLE_MS);
  await take(view, 'console-running');
  held.resolve();
}

async function data(view: ConsolePage, url: string): Promise<void> {
  const { page } = view;
  await page.goto(`${url}/data`);
  await page
    .locator('#query-sql')
    .fill(
      `select cast(vega_time as date) as day, count(*) as entries\nfrom ledger_entries group by day order by day`,
    );
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page
    .locator('#query-result .result table')
    .waitFor({ timeout: NIGHT_MS });
  await page.locator('#tables details').first().waitFor();
  await sleep(SETTLE_MS);
  await take(view, 'console-data');
}

/**
 * Makes the mirror look as if it began eleven weeks ago, by spreading its publications
 * over the nights.
 */
async function rememberNights(app: App): Promise<void> {
  const { pool } = app.warehouse;
  await pool.query(
    `insert into mirror.runs (run_id, kind, subject, state, verdict, queued_at, started_at, finished_at)
     select gen_random_uuid(), 'nightly', 'scheduled', 'done',
       case n when 23 then 'failed' when 41 then 'incomplete' when 42 then 'incomplete' when 60 then 'suspicious' else 'complete' end,
       night, night, night + interval '11 minutes'
     from generate_series(1, $1::int) n, lateral (select date_trunc('day', now()) - n * interval '1 day' + interval '2 hours' as night) at`,
    [HISTORY_DAYS],
  );
  await pool.query(
    `update mirror.segments set published_at = date_trunc('day', published_at) + interval '2 hours'
       - (($1::int * power((segment_id * 37 % 101) / 101.0, 1.5))::int + 1) * interval '1 day'`,
    [HISTORY_DAYS - 1],
  );
}

async function take({ page }: ConsolePage, name: string): Promise<void> {
  await page.evaluate('scrollTo(0, 0)');
  await page.screenshot({ path: join(IMAGES, `${name}.png`) });
}

async function party(view: ConsolePage, app: App, url: string): Promise<void> {
  const { page } = view;
  const found = await app.warehouse.pool.query<{ id: string }>(
    `select party_id as id from mirror.segments where status = 'current' group by 1 order by sum(rows) desc limit 1`,
  );
  await page.goto(`${url}/data#party/${found.rows[0]?.id}`);
  await page.reload();
  await page.getByRole('dialog').locator('.uplot').nth(1).waitFor();
  await page.getByRole('dialog').locator('.entries tbody tr').nth(5).waitFor();
  await take(view, 'console-party');
}

async function phone(url: string): Promise<void> {
  await using view = await openPage({
    colorScheme: 'dark',
    viewport: { width: 390, height: 844 },
  });
  await view.page.goto(url);
  await view.page.getByRole('heading', { name: WHOLE }).waitFor();
  await view.page.locator('#streams article').nth(2).waitFor();
  await take(view, 'console-phone');
}

/** Shows a ledger that could not be exported, and the button to request it again. */
async function attention(url: string, app: App): Promise<void> {
  await app.warehouse.pool.query(
    `update mirror.exports set quarantined_at = now() - interval '4 hours', attempts = 5,
       quarantine_reason = '{"code": "STREAM_CUT", "message": "the export broke off at byte 4,194,304, five times"}'
     where export_id = (select export_id from mirror.exports order by last_entry_at desc nulls last limit 1)`,
  );
  await using view = await openPage({ colorScheme: 'dark' });
  await view.page.goto(url);
  await view.page.locator('#attention .asides li').waitFor();
  await take(view, 'console-attention');
}

async function tellSizes(): Promise<void> {
  for (const name of (await readdir(IMAGES)).toSorted()) {
    const { size } = await stat(join(IMAGES, name));
    process.stdout.write(`${name} ${Math.round(size / 1_000)} kB\n`);
    if (size > IMAGE_BYTES_MAX)
      throw new Error(`${name} is larger than ${IMAGE_BYTES_MAX} bytes`);
  }
}

await main();
