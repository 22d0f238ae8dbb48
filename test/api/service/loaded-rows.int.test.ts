/** A short range of a loaded segment comes from the warehouse in the bytes that the object has; otherwise from the object. */
import { beforeEach, describe, expect, it } from 'vitest';
import type { LedgerQuestion } from '../../../src/ledger/ledger-range.ts';
import { openRows } from '../../../src/postgres/rows.ts';
import { ObjectLedgerReader } from '../../../src/api/service/ledger-reader.ts';
import { LoadedRows } from '../../../src/api/service/store/loaded-rows.ts';
import { parseInstant, type Micros } from '../../../src/core/time.ts';
import { ExportArchiveStore } from '../../../src/export/store/export-archive.ts';
import { ExportStore } from '../../../src/export/store/export-store.ts';
import { loadParty } from '../../../src/load/load-party.ts';
import { LoadStore } from '../../../src/load/store/load-store.ts';
import { loadWorld } from '../../load/load-world.ts';
import { HEADER_12, HEADER_13 } from '../../ledger/csv.ts';
import { ASSET, PARTY_A, PARTY_B, publish, row12, row13 } from '../../load/published.ts';
import { emptyLedgers, unloadSegments } from '../../support/mirror-arrange.ts';

const world = await loadWorld();
const { database, warehouse } = world;
const signal = new AbortController().signal;
const MAY = { from: '2023-05-01T00:00:00Z', to: '2023-06-01T00:00:00Z' };
const loaded = new LoadedRows(openRows(database.pool));

function at(text: string): Micros {
  const instant = parseInstant(text);
  if (instant === undefined) throw new Error(text);
  return instant;
}

function time(minute: number, fraction: string): string {
  return `2023-05-${String(2 + Math.floor(minute / 1440)).padStart(2, '0')} ${new Date(minute * 60_000).toISOString().slice(11, 19)}${fraction}+00`;
}

const ENTRIES = Array.from({ length: 4_000 }, (_, index) => ({
  // Whole seconds, tenths, microseconds; each fifth one repeats the instant before.
  time: time(
    index - (index % 5 === 4 ? 1 : 0),
    ['', '.5', '.123456', '.00001'][(index - (index % 5 === 4 ? 1 : 0)) % 4] ?? '',
  ),
  quantity: `${10n ** 25n + BigInt(index)}`,
  from: PARTY_A,
  to: [PARTY_A, PARTY_B, 'network'][index % 3] ?? PARTY_A,
  balances: ['0', `${index}`] as const,
}));
const FORMS = [
  ['0.71.4', HEADER_12, ENTRIES.map(row12)],
  ['0.73', HEADER_13, ENTRIES.map((entry) => row13(entry, PARTY_A))],
] as const;

async function segment(header: string, rows: readonly string[]): Promise<void> {
  const { objects } = world;
  await publish(database.pool, objects, { party: PARTY_A, ...MAY, header, rows: [...rows] });
  const load = await loadParty(PARTY_A, { repository: new LoadStore(warehouse), objects }, signal);
  expect(load).toMatchObject({ segments: 1, quarantined: [] });
}

async function read(question: Partial<LedgerQuestion>, from?: LoadedRows): Promise<string> {
  const reader = new ObjectLedgerReader({
    exports: new ExportStore(warehouse.db),
    archive: new ExportArchiveStore(warehouse.db),
    objects: world.objects,
    loaded: from,
  });
  const chunks: Buffer[] = [];
  const asked = { partyId: PARTY_A, assetId: undefined, from: undefined, to: undefined, ...question };
  for await (const chunk of reader.read(asked, signal)) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

async function segmentId(): Promise<bigint> {
  const { rows } = await warehouse.pool.query<{ segment_id: bigint }>(
    'select segment_id from mirror.segments',
  );
  return rows[0]?.segment_id ?? 0n;
}

const HOUR = { from: at('2023-05-03T10:00:00Z'), to: at('2023-05-03T11:00:00Z') };

describe('a range of a loaded segment', () => {
  const asked: LedgerQuestion = { partyId: PARTY_A, assetId: undefined, ...HOUR };

  it.each(FORMS)(
    'has the same bytes from the table as from the object, of release %s',
    async (_, header, rows) => {
      await segment(header, rows);
      const ranges: Partial<LedgerQuestion>[] = [
        HOUR,
        { from: at('2023-05-02T00:00:00Z'), to: at('2023-05-04T18:30:00Z') },
        { ...HOUR, assetId: ASSET },
        { ...HOUR, assetId: 'ee'.repeat(32) },
        { from: at('2023-05-20T00:00:00Z'), to: at('2023-05-21T00:00:00Z') },
      ];
      for (const range of ranges) expect(await read(range, loaded)).toBe(await read(range));
      const lines = (await loaded.read(await segmentId(), asked))?.toString().split('\n');
      expect(lines?.length).toBeGreaterThan(50);
    },
  );

  it('has the same lines where the source sent them in no order', async () => {
    await segment(HEADER_12, [...ENTRIES.slice(2_500), ...ENTRIES.slice(0, 2_500)].map(row12));
    const sorted = (text: string): string[] => text.split('\n').toSorted();
    expect(await loaded.read(await segmentId(), asked)).toBeDefined();
    expect(sorted(await read(HOUR, loaded))).toEqual(sorted(await read(HOUR)));
  });

  it.each([
    ['a digit of a time is written that others leave out', (line: string) => line.replace('.5+00', '.50+00')],
    ['an id is in capitals', (line: string) => line.replace('\\xaa', '\\xAA')],
    ['a quantity has a plus', (line: string) => line.replace(',1000', ',+1000')],
    ['a line ends as on Windows', (line: string) => `${line}\r`],
  ])('is read from the object where %s in one row', async (_, change) => {
    const odd = ENTRIES.map(row12).map((line, index) => (index === 3_001 ? change(line) : line));
    expect(odd).not.toEqual(ENTRIES.map(row12));
    await segment(HEADER_12, odd);
    expect(await loaded.read(await segmentId(), asked)).toBeUndefined();
    expect(await read(HOUR, loaded)).toBe(await read(HOUR));
  });

  it('is read from the object where the range has no end or the segment is no longer loaded', async () => {
    await segment(HEADER_12, FORMS[0][2]);
    const id = await segmentId();
    expect(await loaded.read(id, { ...asked, to: undefined })).toBeUndefined();
    await unloadSegments(database.pool);
    expect(await loaded.read(id, asked)).toBeUndefined();
    expect((await read(HOUR, loaded)).split('\n').length).toBeGreaterThan(50);
  });
});

beforeEach(async () => {
  await emptyLedgers(database.pool);
});
