/**
 * Measures the speed of the read API, as ratios within one run: the things to compare
 * take turns, and each result is a median over the rounds. `npm run bench -- api
 * [--quick] [pages] [stream] [hour] [night]`; takes about six minutes, four of them for
 * the nights.
 */
import { globSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import {
  CountingClient,
  openHome,
  runCommand,
  startScript,
  startServing,
  whaleOf,
} from './world/api-world.ts';
import {
  atLeast,
  atMost,
  below,
  between,
  say,
  sayNumber,
  type Target,
} from './world/report.ts';
import { median, openScratch } from './world/scratch-world.ts';

const isQuick = process.argv.includes('--quick');
const chosen = process.argv.slice(2).filter((word) => !word.startsWith('--'));
/** Maximum time to receive one hour of a large segment, to the last byte. */
const HOUR_MS_MAX = 60;
/** Minimum pages per second, as a ratio to one bare query and its JSON. */
const PAGE_RATIO_MIN = 0.7;
const ROUNDS = isQuick ? 3 : 5;
const PARTIES = 1_000_000;
const PAGE_ROWS = 1_000;
const DEEP_PAGE = 900;
const PAGES_A_ROUND = isQuick ? 40 : 100;
const WHALE_ENTRIES = isQuick ? 200_000 : 600_000;
const NIGHT_PARTIES = isQuick ? 100 : 300;
/**
 * After this time, no further pair of nights begins, so that the section ends within four
 * minutes.
 */
const NIGHTS_MS = isQuick ? 60_000 : 180_000;
const PAIRS_MIN = 3;
const PAIRS_MAX = isQuick ? 3 : 7;
const READERS = 200;
const READ_EVERY_MS = 10_000;

await using stack = new AsyncDisposableStack();
const { folder, connectionString } = await openScratch(stack);

interface Times {
  readonly p50: number;
  /** The time that a call takes when nothing else needs the machine. */
  readonly p10: number;
}

/** Measures the times of one call, in milliseconds. */
async function timesOf(
  calls: number,
  work: () => Promise<unknown>,
): Promise<Times> {
  const times: number[] = [];
  for (let call = 0; call < calls; call += 1) {
    const startMs = performance.now();
    await work();
    times.push(performance.now() - startMs);
  }
  const sorted = times.toSorted((a, b) => a - b);
  return {
    p50: median(times),
    p10: sorted[Math.floor(calls / 10)] ?? Number.NaN,
  };
}

/** Fills the tables as a sync of a million parties would. */
async function fillParties(client: Client): Promise<void> {
  await client.query(`insert into mirror.parties (party_id, first_epoch, epoch, pos)
    select encode(sha256(place::text::bytea), 'hex'), 1, 1, place * 1024 from generate_series(1, ${PARTIES}) place
    union all select 'network', 1, null, null`);
  await client.query(
    `insert into mirror.runs (run_id, kind, subject) values (gen_random_uuid(), 'sync', 'parties')`,
  );
  await client.query(`insert into mirror.generations (list, epoch, kind, run_id, last_pos, rows, claimed_at, confirmed_at, head_height, head_time)
    select 'parties', 1, 'current', run_id, ${PARTIES} * 1024, ${PARTIES}, now(), now(), 1, now() from mirror.runs`);
  await client.query('analyze mirror.parties');
}

async function benchPages(): Promise<void> {
  const home = await openHome(connectionString, folder, 'bench_pages');
  await runCommand(['migrate'], home.env);
  const client = new Client({ connectionString: home.databaseUrl });
  await client.connect();
  await fillParties(client);
  await using mirror = await startServing('serve', home.env);
  using http = new CountingClient(1);
  const url = (cursor: string): string =>
    `${mirror.url}/api/v2/parties?pagination.first=${PAGE_ROWS}${cursor === '' ? '' : `&pagination.after=${cursor}`}`;
  const deepCursor = await cursorOfPage(url, DEEP_PAGE);
  // Each walk requests the page after its last one, as a client that mirrors the list
  // does.
  const walk = (start: string): Walk => {
    let cursor = start;
    return {
      restart: () => {
        cursor = start;
      },
      next: async () => {
        cursor = await http.readPage(url(cursor));
      },
    };
  };
  const bareWalk = (start: number): Walk => {
    let from: unknown = start;
    return {
      restart: () => {
        from = start;
      },
      next: async () => {
        const { rows } = await client.query<{ pos: string }>(
          `select pos, party_id from mirror.parties where epoch = 1 and pos < $1 order by pos desc limit ${PAGE_ROWS}`,
          [from],
        );
        JSON.stringify(rows);
        from = rows.at(-1)?.pos;
      },
    };
  };
  const walks = {
    first: walk(''),
    deep: walk(deepCursor),
    bareFirst: bareWalk(PARTIES * 1_024 + 1),
    bareDeep: bareWalk((PARTIES - DEEP_PAGE * PAGE_ROWS) * 1_024),
  };
  const found: Record<keyof typeof walks, Times[]> = {
    first: [],
    deep: [],
    bareFirst: [],
    bareDeep: [],
  };
  for (let round = 0; round <= ROUNDS; round += 1) {
    for (const [name, { restart, next }] of Object.entries(walks)) {
      restart();
      const times = await timesOf(PAGES_A_ROUND, next);
      // The first round is a warm-up.
      if (round > 0) found[name as keyof typeof walks].push(times);
    }
  }
  await client.end();
  const p50 = (times: readonly Times[]): string =>
    `${median(times.map((time) => time.p50)).toFixed(2)} ms`;
  const ratio = (
    over: readonly Times[],
    under: readonly Times[],
    of: keyof Times = 'p50',
  ): number =>
    median(
      over.map((time, round) => time[of] / (under[round]?.[of] ?? Number.NaN)),
    );
  const sayRatio = (what: string, value: number, target: Target): void =>
    sayNumber(what, value, value.toFixed(2), target);
  say(
    'pages of 1,000 of a million, one after the other, p50, from the first on',
    p50(found.first),
  );
  say('the same from the nine-hundredth on', p50(found.deep));
  sayRatio(
    'nine-hundredth / first',
    ratio(found.deep, found.first),
    between(0.8, 1.2),
  );
  say(
    'one pg query and JSON.stringify, p50, from the first on',
    p50(found.bareFirst),
  );
  say('the same from the nine-hundredth on', p50(found.bareDeep));
  sayRatio(
    'pages/s: mirror / bare, from the first on',
    ratio(found.bareFirst, found.first),
    atLeast(PAGE_RATIO_MIN),
  );
  sayRatio(
    'pages/s: mirror / bare, from the nine-hundredth on',
    ratio(found.bareDeep, found.deep),
    atLeast(PAGE_RATIO_MIN),
  );
  say(
    'the same by the fastest tenth, from the first on',
    ratio(found.bareFirst, found.first, 'p10').toFixed(2),
  );
  say(
    'the same by the fastest tenth, from the nine-hundredth on',
    ratio(found.bareDeep, found.deep, 'p10').toFixed(2),
  );
}

interface Walk {
  readonly restart: () => unknown;
  readonly next: () => Promise<unknown>;
}

async function cursorOfPage(
  url: (cursor: string) => string,
  pages: number,
): Promise<string> {
  using http = new CountingClient(1);
  let cursor = '';
  for (let page = 1; page <= pages; page += 1)
    cursor = await http.readPage(url(cursor));
  return cursor;
}

async function benchExport(): Promise<void> {
  await using sandbox = await startScript('serve-sandbox.ts', [
    '20',
    '0',
    `${WHALE_ENTRIES}`,
  ]);
  const home = await openHome(connectionString, folder, 'bench_export');
  const env = {
    ...home.env,
    SOURCE_URL: sandbox.url,
    SOURCE_RATE: '100000',
    EXPORT_COMPRESSION: 'none',
  };
  const partyId = await whaleOf(sandbox.url);
  await runCommand(['export', '--party', partyId], env);
  const objects = join(home.dir, 'objects');
  const found = globSync('ledger/**/*.csv', { cwd: objects });
  const [largest = ''] = found.toSorted(
    (a, b) => sizeOf(objects, b) - sizeOf(objects, a),
  );
  await using files = await startScript('serve-files.ts', [objects]);
  await using mirror = await startServing('serve', home.env);
  using http = new CountingClient(1);
  const asks = {
    mirror: () =>
      http.read(`${mirror.url}/api/v2/ledgerentry/export?partyId=${partyId}`),
    file: () => http.read(`${files.url}/${encodeURIComponent(largest)}`),
  };
  const rates: Record<keyof typeof asks, number[]> = { mirror: [], file: [] };
  let bytes = 0;
  for (const ask of Object.values(asks)) bytes = await ask();
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const [name, ask] of Object.entries(asks)) {
      const startMs = performance.now();
      const sent = await ask();
      rates[name as keyof typeof asks].push(
        sent / 1_000 / (performance.now() - startMs),
      );
      bytes = Math.max(bytes, sent);
    }
  }
  say(
    'export of uncompressed whole segments',
    `${median(rates.mirror).toFixed(0)} MB/s of ${(bytes / 1e6).toFixed(0)} MB`,
  );
  say('a static file route', `${median(rates.file).toFixed(0)} MB/s`);
  const ratio = median(
    rates.mirror.map((rate, round) => rate / (rates.file[round] ?? Number.NaN)),
  );
  sayNumber(
    'export / static file route',
    ratio,
    ratio.toFixed(2),
    atLeast(0.5),
  );
}

function sizeOf(dir: string, file: string): number {
  return statSync(join(dir, file)).size;
}

/**
 * Measures one hour of the largest ledger, which is read from the frames that contain it.
 */
async function benchHour(): Promise<void> {
  await using sandbox = await startScript('serve-sandbox.ts', [
    '20',
    '0',
    `${WHALE_ENTRIES}`,
  ]);
  const home = await openHome(connectionString, folder, 'bench_hour');
  const env = { ...home.env, SOURCE_URL: sandbox.url, SOURCE_RATE: '100000' };
  const partyId = await whaleOf(sandbox.url);
  await runCommand(['export', '--party', partyId], env);
  const client = new Client({ connectionString: home.databaseUrl });
  await client.connect();
  const { rows } = await client.query<{ at: Date; bytes: string }>(
    `select percentile_disc(0.5) within group (order by vega_time) as at,
       (select max(bytes)::text from mirror.segments) as bytes from mirror.ledger_entries`,
  );
  const hourMs = 3_600_000;
  const startMs = Math.floor((rows[0]?.at.getTime() ?? 0) / hourMs) * hourMs;
  await using mirror = await startServing('serve', env);
  using http = new CountingClient(1);
  const range = `dateRange.startTimestamp=${startMs}000000&dateRange.endTimestamp=${startMs + hourMs}000000`;
  const ask = (): Promise<number> =>
    http.read(
      `${mirror.url}/api/v2/ledgerentry/export?partyId=${partyId}&${range}`,
    );
  const bytes = await ask();
  const scanned = await timesOf(ROUNDS, ask);
  await client.end();
  sayNumber(
    `one hour (${bytes} bytes) of a segment of ${(Number(rows[0]?.bytes) / 1e6).toFixed(0)} MB, p50`,
    scanned.p50,
    `${scanned.p50.toFixed(0)} ms`,
    atMost(HOUR_MS_MAX, ' ms'),
  );
}

async function benchNight(): Promise<void> {
  await using sandbox = await startScript('serve-sandbox.ts', [
    `${NIGHT_PARTIES}`,
    '0',
  ]);
  const home = await openHome(connectionString, folder, 'bench_night');
  const env = { ...home.env, SOURCE_URL: sandbox.url, SOURCE_RATE: '100000' };
  await using mirror = await startServing('up', env);
  await runCommand(['nightly'], env);
  const nights: Record<'alone' | 'read', () => Promise<number>> = {
    alone: () => runCommand(['nightly'], env),
    read: async () => {
      const stop = new AbortController();
      const reading = readAll(mirror.url, stop.signal);
      const seconds = await runCommand(['nightly'], env);
      stop.abort();
      pages += await reading;
      return seconds;
    },
  };
  let pages = 0;
  const took: Record<keyof typeof nights, number[]> = { alone: [], read: [] };
  const endMs = performance.now() + NIGHTS_MS;
  for (
    let pair = 0;
    pair < PAIRS_MAX && (pair < PAIRS_MIN || performance.now() < endMs);
    pair += 1
  ) {
    // The order alternates, because each night finds what the previous one left.
    const order =
      pair % 2 === 0
        ? (['alone', 'read'] as const)
        : (['read', 'alone'] as const);
    for (const name of order) took[name].push(await nights[name]());
  }
  const pairs = took.read.map(
    (seconds, pair) => seconds / (took.alone[pair] ?? Number.NaN),
  );
  say(
    `a night over ${NIGHT_PARTIES} parties`,
    `${median(took.alone).toFixed(1)} s`,
  );
  say(
    `the same while ${READERS} connections read (${pages} pages in all)`,
    `${median(took.read).toFixed(1)} s`,
  );
  sayNumber(
    `with readers / without (${pairs.map((one) => one.toFixed(2)).join(', ')})`,
    median(pairs),
    median(pairs).toFixed(2),
    below(1.2),
  );
}

/**
 * Keeps connections open, each requesting a page every ten seconds, spread evenly over
 * that time.
 * @returns the number of pages received
 */
async function readAll(url: string, signal: AbortSignal): Promise<number> {
  using http = new CountingClient(READERS);
  let pages = 0;
  const path = `${url}/api/v2/parties?pagination.first=${PAGE_ROWS}`;
  await Promise.all(
    Array.from({ length: READERS }, async (_, reader) => {
      await sleep((reader * READ_EVERY_MS) / READERS, undefined, {
        signal,
      }).catch(() => undefined);
      while (!signal.aborted) {
        await http.read(path);
        pages += 1;
        await sleep(READ_EVERY_MS, undefined, { signal }).catch(
          () => undefined,
        );
      }
    }),
  );
  return pages;
}

const SECTIONS = {
  pages: benchPages,
  stream: benchExport,
  hour: benchHour,
  night: benchNight,
};
for (const [name, bench] of Object.entries(SECTIONS)) {
  if (chosen.length === 0 || chosen.includes(name)) await bench();
}
