/**
 * Measures what a lost database costs the source, and how long recovery takes: `npm run
 * bench -- recovery [parties] [many] [whale] [rates] [--quick]`. Real commands mirror a
 * sandbox network through a proxy that counts the answers; all databases are in one
 * embedded Postgres. Everything takes about a quarter of an hour and 8 GB below the
 * temporary folder; `--quick` uses a tenth of the entries.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Traffic } from '../test/support/measure/traffic-meter.ts';
import { say, sayGate, sayLoad } from './world/report.ts';
import { median } from './world/scratch-world.ts';
import { Measured, type World } from './world/recovery-world.ts';

const isQuick = process.argv.includes('--quick');
const chosen = process.argv.slice(2).filter((word) => !word.startsWith('--'));
/**
 * Scales a number of entries. A tenth is enough to see whether data is requested twice.
 */
const scaled = (count: number): number => (isQuick ? count / 10 : count);

/** Maximum share of the ledgers' bytes that the night after a loss may receive. */
const SHARE_MAX = 0.01;
/**
 * The factor by which two ordinary nights may differ, because some periods of ten minutes
 * have more new entries than others. Requesting a ledger twice would exceed it.
 */
const NIGHTS_DIFFER = 1.25;
const ROUNDS = 5;
const MB = 1e6;

const THOUSAND: World = {
  name: `${scaled(1_000).toLocaleString('en')} parties`,
  parties: scaled(1_000),
  entriesMean: 1_500,
};
/**
 * The same number of parties, but with ledgers of ordinary size, which a fast machine
 * mirrors in minutes. SHARE_MAX cannot be applied to them, because a hundredth of such a
 * ledger is less than the fixed cost of one response.
 */
const MANY: World = {
  name: `${scaled(1_000).toLocaleString('en')} parties with small ledgers`,
  parties: scaled(1_000),
  entriesMean: 150,
};
const WHALE: World = {
  name: 'one ledger',
  parties: 4,
  entriesMean: 5,
  whaleEntries: scaled(4_900_000),
  isWhaleAlone: true,
};
const LOADED: World = {
  name: `${scaled(300)} parties`,
  parties: scaled(300),
  entriesMean: 2_000,
};

sayLoad('before');
if (isChosen('parties')) await measureLoss(THOUSAND);
if (isChosen('many')) await measureLoss(MANY, 'as an ordinary night');
if (isChosen('whale')) await measureLoss(WHALE);
if (isChosen('rates')) await measureLoads(LOADED);
sayLoad('after');

function isChosen(part: string): boolean {
  return chosen.length === 0 || chosen.includes(part);
}

/**
 * Measures the recovery of one database that is lost, and of another that is restored to
 * its state two nights ago.
 */
async function measureLoss(
  world: World,
  bytesMax: BytesMax = 'a hundredth',
): Promise<void> {
  await using stack = new AsyncDisposableStack();
  const measured = await Measured.open(stack, world);
  await measured.create('original');
  const whole = await measured.night('original');
  await measured.night('original');
  await measured.create('restored', 'original');
  await measured.night('original');
  const ordinary = await measured.night('original');
  const known = measured.parties;

  const [held] = await measured.query(
    "select sum(rows) as rows, sum(bytes) as bytes from mirror.segments where status = 'current'",
    'original',
  );
  const plain = (Number(held?.['bytes']) / MB).toFixed(0);
  const rows = Number(held?.['rows']).toLocaleString('en');
  const wire = (whole.exportBytes / MB).toFixed(1);
  const { name } = world;
  say(
    `${name}: its entries`,
    `${rows}; ${plain} MB of CSV, ${wire} MB received`,
  );
  const each = Math.round(ordinary.exportBytes / ordinary.exports);
  say(`${name}: an ordinary night`, describe(ordinary, whole));
  say(`${name}: an answer of it, on average`, `${each} bytes`);

  const judge = async (what: string, database: string): Promise<void> => {
    const rebuilding = await measured.rebuild(database);
    const night = await measured.night(database);
    // Parties that have arrived in the meantime are requested too.
    const exportsMax = ordinary.exports + measured.parties - known;
    const lists = rebuilding.lists + night.lists;
    const exports = rebuilding.exports + night.exports;
    const exportBytes = rebuilding.exportBytes + night.exportBytes;
    sayGate(
      `${name}: ${what}, \`load --all\` and a night`,
      describe({ lists, exports, exportBytes }, whole),
      `at most ${ordinary.lists} and ${exportsMax} requests, ${bytesMax}`,
      lists <= ordinary.lists &&
        exports <= exportsMax &&
        exportBytes <= largestBytes(bytesMax, ordinary, whole),
    );
  };
  await judge('two nights lost', 'restored');
  await measured.create('empty');
  await judge('the database lost', 'empty');
}

/**
 * The maximum number of bytes in the night after a loss: a hundredth of the bytes of all
 * ledgers, or the bytes of an ordinary night.
 */
type BytesMax = 'a hundredth' | 'as an ordinary night';

function largestBytes(
  bytesMax: BytesMax,
  ordinary: Traffic,
  whole: Traffic,
): number {
  if (bytesMax === 'a hundredth') return SHARE_MAX * whole.exportBytes;
  return NIGHTS_DIFFER * ordinary.exportBytes;
}

/** Formats traffic: "6 pages of lists, 1,001 exports, 0.53 MB (0.84 %)" */
function describe(asked: Traffic, whole: Traffic): string {
  const { lists, exports, exportBytes } = asked;
  const share = ((100 * exportBytes) / whole.exportBytes).toFixed(2);
  const megabytes = (exportBytes / MB).toFixed(3);
  return `${lists} pages of lists, ${exports} exports, ${megabytes} MB (${share} %)`;
}

/**
 * Measures `load --all` into an empty database, alternating with `load` of the same
 * segments. The two take turns going first, and the server writes its dirty pages before
 * each of them, so that neither pays for what the other has written.
 */
async function measureLoads(world: World): Promise<void> {
  await using stack = new AsyncDisposableStack();
  const measured = await Measured.open(stack, world);
  await measured.create('original');
  await measured.night('original');
  const loads: number[] = [];
  const rebuilds: number[] = [];
  const load = async (round: number): Promise<void> => {
    const loaded = `loaded_${round}`;
    await measured.create(loaded, 'original');
    await measured.query(
      `truncate mirror.ledger_entries, mirror.segment_months;
       update mirror.segments set loaded_at = null`,
      loaded,
    );
    await rm(join(measured.home.objectsDir, 'lake'), { recursive: true });
    await measured.query('checkpoint', 'template1');
    loads.push((await measured.run(['load', '--take-over'], loaded)).seconds);
  };
  const rebuild = async (round: number): Promise<void> => {
    const rebuilt = `rebuilt_${round}`;
    await measured.create(rebuilt);
    await measured.run(['migrate'], rebuilt);
    await measured.query('checkpoint', 'template1');
    rebuilds.push((await measured.rebuild(rebuilt)).seconds);
  };
  for (let round = 0; round < ROUNDS; round += 1) {
    const inTurn = round % 2 === 0 ? [load, rebuild] : [rebuild, load];
    for (const measure of inTurn) await measure(round);
  }
  const [held] = await measured.query(
    'select count(*) as rows from mirror.ledger_entries',
    'original',
  );
  const rows = Number(held?.['rows']);
  const rate = (seconds: readonly number[]): string =>
    `${Math.round(rows / median(seconds)).toLocaleString('en')} rows/s`;
  say(`${world.name}, ${rows} entries: \`load\``, rate(loads));
  say('the same: `load --all` into an empty database', rate(rebuilds));
  const ratios = loads.map((value, at) => value / (rebuilds[at] ?? Infinity));
  const shown = ratios.map((value) => value.toFixed(2)).join(', ');
  sayGate(
    '`load --all` / `load`, by rows a second',
    `${median(ratios).toFixed(2)} (${shown})`,
    'at least 1',
    median(ratios) >= 1,
  );
}
