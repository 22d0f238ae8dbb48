/**
 * What the status and the pages of the console read of a large mirror: plans and blocks,
 * no times.
 */
import { expect, test } from 'vitest';
import { readLive } from '../../../src/api/console/store/work-statements.ts';
import { openRows } from '../../../src/postgres/api-rows.ts';
import { openWarehouse } from '../../../src/postgres/database.ts';
import { readNightlyScope } from '../../../src/runs/nightly/nightly-preview.ts';
import { countDue } from '../../../src/runs/store/nightly/nightly-plan.ts';
import { readStoredFacts } from '../../../src/status/store/status-store.ts';
import { apiWithoutDatabase } from '../mirror.ts';
import { freshDatabase, openTestPool } from '../../support/database.ts';
import { explainStatements } from '../../support/measure/explain-statements.ts';
import { fillMirror } from '../../support/measure/large-mirror.ts';

const PARTIES = 4_000;
const ENTRIES = 120_000;
/** A page of rows, each found by an index, in five months. */
const PAGE_BLOCKS = 900;
/**
 * Each table of a row for each party, once or twice; a second look at each row would be
 * thousands.
 */
const COUNTED_BLOCKS = 900;

const database = await freshDatabase({ isMigrated: true });
const { busy, idle, assetId, runId } = await fillMirror(database.pool, {
  parties: PARTIES,
  entries: ENTRIES,
});
const warehouse = openWarehouse({
  url: database.url,
  onIdleError: () => undefined,
});
const rows = openRows(warehouse.pool);
const server = await apiWithoutDatabase({ rows });
/** What a route of the console answers. */
async function ask(path: string): Promise<void> {
  const { statusCode, body } = await server.inject({
    url: `/console/${path}`,
    headers: { host: 'localhost' },
  });
  if (statusCode !== 200) throw new Error(body);
}
const night = {
  db: warehouse.db,
  sourceAssets: undefined,
  nightlyParties: { kind: 'all' } as const,
};

test.each([
  ['what is going on', () => readLive(rows), 60],
  ['the time lines', () => ask('lines'), PAGE_BLOCKS],
  ['a page of parties', () => ask('parties?view=id'), PAGE_BLOCKS],
  [
    'the parties of the newest entries',
    () => ask('parties?view=recent'),
    PAGE_BLOCKS,
  ],
  ['a busy party', () => ask(`parties/${busy}`), 1_300],
  ['an idle party', () => ask(`parties/${idle}`), 200],
  ['its flows', () => ask(`parties/${busy}/flows?asset=${assetId}`), 425],
  [
    'its balance',
    () => ask(`parties/${busy}/balance?asset=${assetId}&type=GENERAL`),
    425,
  ],
  ['its entries', () => ask(`parties/${busy}/entries`), 200],
  [
    'its entries until a day',
    () => ask(`parties/${busy}/entries?until=2023-03-10`),
    200,
  ],
  ['what a run cost', () => ask(`runs/${runId}/costs`), 200],
  ['how the mirror grew', () => ask('history'), COUNTED_BLOCKS],
  ['the status', () => readStoredFacts(warehouse.db), COUNTED_BLOCKS],
  [
    'what a nightly run would ask',
    async () => countDue(night.db, (await readNightlyScope(night)).scope),
    250,
  ],
])(
  '%s reads no table of entries from end to end, and few blocks',
  async (_, work, blocksMax) => {
    const explained = await explainStatements(database.pool, work);
    expect(explained).not.toEqual([]);
    expect(
      explained
        .flatMap(({ scanned }) => scanned)
        .filter((name) => name.startsWith('ledger_entries')),
    ).toEqual([]);
    expect(
      explained.reduce((sum, { buffers }) => sum + buffers, 0),
    ).toBeLessThan(blocksMax);
  },
);

test('the status reads ranges and segments from their indexes alone, in the order of parties', async () => {
  // To 4,000 parties what the usual 4 MB are to 100,000: nothing of each can be sorted or
  // grouped in memory.
  const pool = openTestPool({
    connectionString: database.url,
    options: '-c work_mem=160kB',
  });
  try {
    const explained = await explainStatements(pool, () =>
      readStoredFacts(warehouse.db),
    );
    const scanned = explained.flatMap((statement) => statement.scanned);
    expect(scanned).toContain('parties');
    expect(scanned).not.toContain('coverage');
    expect(scanned).not.toContain('segments');
  } finally {
    await pool.end();
  }
});
