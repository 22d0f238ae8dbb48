/**
 * Pages of records: the same ledgers have the same pages whatever was there before, a
 * change costs one page a level, and two sides are compared in requests that grow with
 * their difference.
 */
import { describe, expect, test } from 'vitest';
import { compareMirrors, type ComparedSide } from '../../src/proof/compare.ts';
import {
  encodeRecord,
  type LedgerRecord,
  recordHash,
} from '../../src/proof/ledger-record.ts';
import { rootHash } from '../../src/proof/merkle.ts';
import {
  type BuiltPages,
  decodePage,
  entryOf,
  PageBuilder,
  type PageEntry,
  placePath,
} from '../../src/proof/pages.ts';
import {
  type ProofFiles,
  readRecordEntries,
} from '../../src/proof/proof-files.ts';
import type { Statement } from '../../src/proof/statement.ts';
import { hexId } from '../support/samples.ts';

describe('PageBuilder', () => {
  test.each([0, 1, 2, 63, 500, 5_000])(
    'lists %i records in their order, below one page',
    async (count) => {
      const side = await sideOf(ledgers(count));
      const read = await entriesOf(side);
      const expected = ledgers(count).map(({ party }) => party);
      expect(read.map(([party]) => party)).toEqual(expected);
      expect(side.statement.ledgers.top === null).toBe(count === 0);
    },
  );

  test('writes one page of each level again if one of 20,000 ledgers changed', async () => {
    const before = await sideOf(ledgers(20_000));
    const changed = ledgers(20_000);
    changed[12_345] = ledger(12_345, '2');
    const after = await sideOf(changed, before);
    const { levels } = after.statement.ledgers;
    expect(levels).toBeGreaterThan(1);
    expect(after.pagesWritten).toBe(levels);
    expect(after.pageBytesWritten).toBeLessThan(128 * 2 ** 10);
  });

  test('writes a few pages again if a ledger is new', async () => {
    const all = ledgers(5_000);
    const before = await sideOf(all.filter((_, index) => index !== 2_345));
    const after = await sideOf(all, before);
    const fresh = await sideOf(all);
    expect(after.pagesWritten).toBeLessThan(
      2 * after.statement.ledgers.levels + 1,
    );
    expect(after.statement.ledgers.top?.[2]).toBe(
      fresh.statement.ledgers.top?.[2],
    );
  });
});

describe('decodePage', () => {
  test('refuses a page whose entries are not those of the page above', async () => {
    const side = await sideOf(ledgers(50));
    const { top } = side.statement.ledgers;
    if (top === null) throw new Error('there is no page');
    const [, , , file, start, bytes] = top;
    const path = placePath([file, start, bytes], false);
    const page = await side.files.read(path, { start, end: start + bytes });
    const text = String(page);
    const lines = text.split('\n');
    expect(decodePage(text, top)).toHaveLength(lines.length);
    const [first = '', second = '', ...rest] = lines;
    for (const wrong of [
      [second, ...rest].join('\n'),
      [second, first, ...rest].join('\n'),
      [first, first, ...rest].join('\n'),
      'no page',
      '',
    ]) {
      const decode = () => decodePage(wrong, top);
      expect(decode).toThrow(
        expect.objectContaining({ code: 'PROOF_PAGE_INVALID' }),
      );
    }
  });
});

describe('compareMirrors', () => {
  test('finds no difference between equal ones with no request', async () => {
    const left = await sideOf(ledgers(3_000));
    const right = await sideOf(ledgers(3_000));
    expect(await compareMirrors(left, right)).toMatchObject({
      isSame: true,
      ledgerCount: 0,
    });
    expect(left.reads() + right.reads()).toBe(0);
  });

  test('names the ledgers and months that differ, in a few requests', async () => {
    const other = ledgers(20_000);
    other[7] = ledger(7, '3');
    other.splice(19_000, 1);
    const left = await sideOf(ledgers(20_000));
    const right = await sideOf(other);
    const found = await compareMirrors(left, right);
    expect(found.isSame).toBe(false);
    expect(found.ledgers).toEqual([
      {
        party: partyId(7),
        asset: null,
        heldBy: 'both',
        months: [{ month: '2023-05', left: '1', right: '3' }],
      },
      {
        party: partyId(19_000),
        asset: null,
        heldBy: 'left',
        months: [{ month: '2023-05', left: '1', right: null }],
      },
    ]);
    const { levels } = left.statement.ledgers;
    expect(left.reads()).toBeLessThan(4 * (levels + 2));
    expect(right.reads()).toBeLessThan(4 * (levels + 2));
  });

  test.each([
    [0, 500],
    [1, 5_000],
    [40, 20_000],
    [5_000, 3],
  ])(
    'compares %i ledgers with %i, whatever their levels',
    async (few, many) => {
      const found = await compareMirrors(
        await sideOf(ledgers(few)),
        await sideOf(ledgers(many)),
      );
      expect(found.ledgerCount).toBe(Math.abs(many - few));
      expect(found.ledgers.length).toBeLessThanOrEqual(100);
    },
  );

  test('counts no ledger of a statement alone, and says that they differ', async () => {
    const left = await sideOf(ledgers(30));
    const right = { ...(await sideOf(ledgers(31))), files: undefined };
    expect(await compareMirrors(left, right)).toMatchObject({
      isSame: false,
      ledgerCount: null,
    });
  });
});

type BuiltSide = ComparedSide & {
  readonly files: ProofFiles;
  readonly pagesWritten: number;
  readonly pageBytesWritten: number;
  /** How often its files were read. */
  readonly reads: () => number;
  readonly pages: ReadonlyMap<string, readonly [string, number, number]>;
};

let files = 0;

/** @param before pages that are there already are not written again */
async function sideOf(
  records: readonly LedgerRecord[],
  before?: BuiltSide,
): Promise<BuiltSide> {
  files += 1;
  const name = `${files}-00000000`;
  const contents = new Map<string, Buffer>();
  const pages = new Map(before?.pages);
  let text = '';
  let recordText = '';
  let pagesWritten = 0;
  const builder = new PageBuilder(async (hash, page) => {
    const known = pages.get(hash);
    if (known !== undefined) return known;
    const place = [name, text.length, page.length] as const;
    text += page;
    pagesWritten += 1;
    pages.set(hash, place);
    return place;
  });
  const hashes: Buffer[] = [];
  for (const record of records) {
    const line = encodeRecord(record);
    const hash = recordHash(line);
    hashes.push(hash);
    const place = [name, recordText.length, line.length] as const;
    recordText += line;
    await builder.add(entryOf(record.party, null, hash.toString('hex'), place));
  }
  const built: BuiltPages = await builder.finish();
  contents.set(`pages/${name}`, Buffer.from(text));
  contents.set(`ledgers/${name}`, Buffer.from(recordText));
  let reads = 0;
  return {
    name,
    statement: statementOf(built, hashes),
    files: {
      where: name,
      async read(path, range) {
        reads += 1;
        const content = contents.get(path) ?? (await before?.files.read(path));
        return range === undefined
          ? content
          : content?.subarray(range.start, range.end);
      },
    },
    pagesWritten,
    pageBytesWritten: text.length,
    reads: () => reads,
    pages,
  };
}

/** Only what pages and comparisons look at. */
function statementOf(built: BuiltPages, hashes: readonly Buffer[]): Statement {
  const list = { epoch: 1, rows: '0', digest: hexId('00') };
  return {
    lists: { parties: list, checkpoints: list },
    ledgers: {
      count: hashes.length,
      root: rootHash(hashes).toString('hex'),
      ...built,
    },
  } as unknown as Statement;
}

async function entriesOf(side: BuiltSide): Promise<PageEntry[]> {
  const entries: PageEntry[] = [];
  for await (const entry of readRecordEntries(side.files, side.statement))
    entries.push(entry);
  return entries;
}

function ledgers(count: number): LedgerRecord[] {
  return Array.from({ length: count }, (_, index) => ledger(index));
}

function ledger(index: number, rows = '1'): LedgerRecord {
  const digest = Number(rows).toString(16).padStart(64, '0');
  return {
    party: partyId(index),
    asset: null,
    covered: [[null, null]],
    months: [['2023-05', rows, digest]],
    notLoaded: '0',
    rows,
  };
}

/** In the order of their numbers. */
function partyId(index: number): string {
  return index.toString(16).padStart(64, '0');
}
