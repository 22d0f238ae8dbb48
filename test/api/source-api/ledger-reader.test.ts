/**
 * A ledger read back from its objects: whole segments untouched, cut ones row by row,
 * holes refused.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openLedger } from '../../../src/exports/reading/read-ledger.ts';
import type { ReadingFacts } from '../../../src/exports/reading/plan-reading.ts';
import type { LedgerQuery } from '../../../src/ledger/ledger-range.ts';
import { BEGINNING } from '../../../src/time/time.ts';
import type { Coverage } from '../../../src/catalog/coverage-rows.ts';
import { openFileStore } from '../../../src/storage/file-store.ts';
import type { ObjectStore } from '../../../src/storage/object-store.ts';
import { HEADER_12, HEADER_13 } from '../../ledger/csv.ts';
import { instant } from '../../support/samples.ts';

const PARTY = 'ab'.repeat(32);
const GOLD = 'c0'.repeat(32);
const SILVER = 'c1'.repeat(32);
const signal = new AbortController().signal;
let folder = '';
let objects: ObjectStore;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-api-'));
  objects = openFileStore(folder);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

function row(time: string, asset = GOLD): string {
  return `${time},1000,TRANSFER_TYPE_DEPOSIT,\\x${asset},\\x,\\x${PARTY},4,\\x,\\x03,10,5,6`;
}

interface Part {
  readonly from: string;
  readonly to: string;
  /** Absent: the range is known to be empty. */
  readonly rows?: readonly string[];
  readonly header?: string;
  readonly asset?: string;
  readonly suffix?: '' | '.gz' | '.zst';
}

let made = 0;

type ReaderDeps = Parameters<typeof openLedger>[0];

/** A ledger that is known in these parts. */
async function readerOf(
  parts: readonly Part[],
  known: Partial<ReadingFacts> = {},
): Promise<ReaderDeps> {
  const coverage: Coverage[] = [];
  for (const part of parts) {
    const range = {
      assetId: part.asset,
      from: instant(part.from),
      to: instant(part.to),
      open: false,
      coverageId: 1n,
      sides: 'from' as const,
      tail: undefined,
    };
    if (part.rows === undefined) {
      coverage.push({ ...range, objectKey: undefined, rows: 0n });
      continue;
    }
    const plain = Buffer.from(
      `${[part.header ?? HEADER_12, ...part.rows].join('\n')}\n`,
    );
    const suffix = part.suffix ?? '.zst';
    made += 1;
    const objectKey = `ledger/${made}.csv${suffix}`;
    const stored = {
      '': plain,
      '.gz': gzipSync(plain),
      '.zst': zstdCompressSync(plain),
    }[suffix];
    await objects.publishBytes(objectKey, stored, signal);
    const columns = (part.header ?? HEADER_12).split(',');
    const content = {
      bytes: BigInt(plain.length),
      digest: '',
      rowForm: '',
      columns,
    };
    coverage.push({
      ...range,
      objectKey,
      rows: BigInt(part.rows.length),
      content,
    });
  }
  const facts = {
    demandedAssets: [],
    newestColumns: undefined,
    now: instant('2023-07-01T00:00:00Z'),
    ...known,
  };
  return {
    exports: { coverage: async () => coverage },
    readFacts: async () => facts,
    objects,
  };
}

async function textOf(
  reader: ReaderDeps,
  question: Partial<LedgerQuery> = {},
): Promise<string> {
  const chunks: Buffer[] = [];
  const whole = {
    partyId: PARTY,
    assetId: undefined,
    from: undefined,
    to: undefined,
    ...question,
  };
  const reading = await openLedger(reader, whole, signal);
  for await (const chunk of reading.rows()) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

function csv(...rows: readonly string[]): string {
  return `${[HEADER_12, ...rows].join('\n')}\n`;
}

const FIRST = [
  row('2023-05-01 10:00:00.5+00'),
  row('2023-05-01 10:00:00.5+00'),
  row('2023-05-02 00:00:00+00', SILVER),
];
const SECOND = [
  row('2023-06-01 00:00:00+00'),
  row('2023-06-01 23:59:59.999999+00'),
];
const LEDGER: readonly Part[] = [
  { from: '1970-01-01', to: '2023-05-03', rows: FIRST, suffix: '.gz' },
  { from: '2023-05-03', to: '2023-06-01' },
  { from: '2023-06-01', to: '2023-06-02', rows: SECOND, suffix: '' },
];

describe('a ledger read from its segments', () => {
  test('is one CSV of its segments, repeated rows kept, whichever way they are stored', async () => {
    expect(await textOf(await readerOf(LEDGER))).toBe(csv(...FIRST, ...SECOND));
  });

  test('is only a header where it has no entries', async () => {
    expect(
      await textOf(await readerOf([{ from: '1970-01-01', to: '2023-06-02' }])),
    ).toBe(csv());
  });

  test.each([
    ['2023-05-01 10:00:00', '2023-05-01 10:00:01', FIRST.slice(0, 2)],
    ['2023-05-01 10:00:01', '2023-06-02', [FIRST[2], ...SECOND]],
    ['2023-05-02', '2023-06-01', [FIRST[2]]],
    ['2023-06-01', '2023-06-01 23:59:59', [SECOND[0]]],
    ['2023-05-03', '2023-06-01', []],
    ['2023-06-01', '2023-05-01', []],
  ])(
    'holds only the rows in between where it is read from %s to %s',
    async (from, to, rows) => {
      const range = {
        from: instant(`${from.padEnd(19, ' 00:00:00')}Z`),
        to: instant(`${to.padEnd(19, ' 00:00:00')}Z`),
      };
      expect(await textOf(await readerOf(LEDGER), range)).toBe(
        csv(...(rows as string[])),
      );
    },
  );

  test('holds no other asset where one is asked for', async () => {
    expect(await textOf(await readerOf(LEDGER), { assetId: SILVER })).toBe(
      csv(FIRST[2]!),
    );
    expect(
      await textOf(await readerOf(LEDGER), { assetId: 'c2'.repeat(32) }),
    ).toBe(csv());
  });

  test('is cut correctly where rows span the windows it is read in', async () => {
    const rows = Array.from({ length: 20_000 }, (_, n) =>
      row(`2023-05-01 ${`${n % 24}`.padStart(2, '0')}:00:00+00`),
    );
    const reader = await readerOf([
      { from: '1970-01-01', to: '2023-06-01', rows },
    ]);
    const text = await textOf(reader, {
      from: instant('2023-05-01T12:00:00Z'),
    });
    expect(text).toBe(
      csv(...rows.filter((line) => line.slice(11, 13) >= '12')),
    );
  });
});

describe('a range that is not covered', () => {
  test.each([
    ['never exported', [], {}],
    ['a beginning', LEDGER.slice(1), {}],
    ['a hole', [LEDGER[0]!, LEDGER[2]!], {}],
    ['everything asked for', LEDGER, { from: instant('2023-06-02T00:00:00Z') }],
    [
      'everything asked for, with an end',
      LEDGER,
      {
        from: instant('2023-07-01T00:00:00Z'),
        to: instant('2023-08-01T00:00:00Z'),
      },
    ],
    [
      'one of the assets',
      [
        { ...LEDGER[0]!, asset: GOLD },
        { ...LEDGER[2]!, asset: SILVER },
      ],
      {},
    ],
  ] as const)(
    'is refused, not served as empty, where it lacks %s',
    async (_what, parts, question) => {
      await expect(
        textOf(await readerOf(parts), question),
      ).rejects.toMatchObject({
        code: 'LEDGER_NOT_MIRRORED',
      });
    },
  );

  test.each([
    [
      'a part at the end',
      { to: instant('2023-07-01T00:00:00Z') },
      '2023-06-02',
    ],
    [
      'the end, from a start',
      {
        from: instant('2023-05-01T00:00:00Z'),
        to: instant('2023-06-02T00:00:01Z'),
      },
      '2023-06-02',
    ],
  ] as const)(
    'is refused with the end of what is known where it lacks %s',
    async (_what, question, knownTo) => {
      const reading = textOf(await readerOf(LEDGER), question);
      await expect(reading).rejects.toMatchObject({
        code: 'LEDGER_NOT_MIRRORED',
        meta: { knownTo: instant(knownTo) },
      });
    },
  );

  test('is left out where the question takes what there is, and named', async () => {
    const parts = await readerOf([LEDGER[0]!, LEDGER[2]!]);
    const whole = { partyId: PARTY, isPartial: true };
    const reading = await openLedger(parts, whole, signal);
    expect(reading.missing).toEqual([
      {
        assetId: undefined,
        from: instant('2023-05-03'),
        to: instant('2023-06-01'),
      },
    ]);
    expect(reading.knownTo).toBe(instant('2023-05-03'));
    expect(await textOf(parts, { isPartial: true })).toBe(
      csv(...FIRST, ...SECOND),
    );
  });

  test('names where knowledge begins again if the beginning is not known', async () => {
    await expect(textOf(await readerOf(LEDGER.slice(1)))).rejects.toMatchObject(
      {
        meta: { knownFrom: instant('2023-05-03'), knownTo: undefined },
      },
    );
  });

  test('is no range of the future, of which nobody can know anything', async () => {
    const from = instant('2023-07-03T00:00:00Z');
    expect(await textOf(await readerOf(LEDGER), { from })).toBe(csv());
  });

  test('is no range before 1970, when no ledger had begun', async () => {
    const reader = await readerOf(LEDGER);
    const from = instant('1960-01-01T00:00:00Z');
    const to = instant('2023-05-03T00:00:00Z');
    expect(await textOf(reader, { from, to })).toBe(csv(...FIRST));
    expect(await textOf(reader, { to: BEGINNING })).toBe(csv());
  });

  test('is every asset where only one was exported', async () => {
    const parts = LEDGER.map((part) => ({ ...part, asset: GOLD }));
    await expect(textOf(await readerOf(parts))).rejects.toMatchObject({
      code: 'LEDGER_NOT_MIRRORED',
    });
    const demanded = { demandedAssets: [GOLD, SILVER] };
    await expect(textOf(await readerOf(parts, demanded))).rejects.toThrow(
      `in asset ${SILVER}`,
    );
    const all = await readerOf(parts, { demandedAssets: [GOLD] });
    expect(await textOf(all)).toBe(csv(...FIRST, ...SECOND));
  });

  test('ends an answer without an end where the first of its assets is no longer known', async () => {
    const gold = { ...LEDGER[0]!, asset: GOLD };
    const silver = { from: '1970-01-01', to: '2023-05-02', asset: SILVER };
    const reader = await readerOf([gold, silver], {
      demandedAssets: [GOLD, SILVER],
    });
    const reading = await openLedger(reader, { partyId: PARTY }, signal);
    expect([reading.knownTo, reading.missing]).toEqual([
      instant('2023-05-02'),
      [],
    ]);
    expect(await textOf(reader)).toBe(csv(...FIRST.slice(0, 2)));
  });

  test('does not matter outside of the range that is asked for', async () => {
    const from = instant('2023-06-01T00:00:00Z');
    expect(
      await textOf(await readerOf([LEDGER[0]!, LEDGER[2]!]), { from }),
    ).toBe(csv(...SECOND));
    const to = instant('2023-05-03T00:00:00Z');
    expect(
      await textOf(await readerOf([LEDGER[0]!, LEDGER[2]!]), {
        from: BEGINNING,
        to,
      }),
    ).toBe(csv(...FIRST));
  });

  test('is covered for each asset once all assets are covered together', async () => {
    const parts = [
      LEDGER[0]!,
      { from: '2023-05-03', to: '2023-06-02', rows: SECOND, asset: GOLD },
    ];
    expect(await textOf(await readerOf(parts), { assetId: GOLD })).toBe(
      csv(FIRST[0]!, FIRST[1]!, ...SECOND),
    );
  });
});

describe('columns that change from release to release', () => {
  const newer = `2023-06-01 12:00:00+00,7,"-7",TRANSFER_TYPE_LOSS,${GOLD},"",${PARTY},GENERAL,"1,0","",network,"a ""b""",2`;
  const olderAsNewer = (time: string): string =>
    `${time},1000,,TRANSFER_TYPE_DEPOSIT,\\x${GOLD},\\x,\\x${PARTY},4,5,\\x,\\x03,10,6`;
  const OLDER = [
    row('2023-05-01 10:00:00.5+00'),
    row('2023-05-01 10:00:00.5+00'),
  ];
  const older = { from: '1970-01-01', to: '2023-06-01', rows: OLDER };
  const parts = [
    older,
    { from: '2023-06-01', to: '2023-06-02', header: HEADER_13, rows: [newer] },
  ];

  test('become those of the newest release, matched by name; fields keep their bytes and missing ones are empty', async () => {
    const rows = [
      olderAsNewer('2023-05-01 10:00:00.5+00'),
      olderAsNewer('2023-05-01 10:00:00.5+00'),
      newer,
    ];
    expect(await textOf(await readerOf(parts))).toBe(
      `${[HEADER_13, ...rows].join('\n')}\n`,
    );
  });

  test("are the release's own where what is asked for is of one", async () => {
    expect(
      await textOf(await readerOf(parts), {
        to: instant('2023-06-01T00:00:00Z'),
      }),
    ).toBe(csv(...OLDER));
    const from = instant('2023-06-01T00:00:00Z');
    expect(await textOf(await readerOf(parts), { from })).toBe(
      `${HEADER_13}\n${newer}\n`,
    );
  });

  test('come last where only an older release has them', async () => {
    const more = {
      ...older,
      header: `note,${HEADER_12}`,
      rows: [`"a, ""b""",${OLDER[0]}`],
    };
    const text = await textOf(await readerOf([more, parts[1]!]));
    expect(text).toBe(
      `${HEADER_13},note\n${olderAsNewer('2023-05-01 10:00:00.5+00')},"a, ""b"""\n${newer},\n`,
    );
  });

  test('are merged correctly where a range cuts a segment and where rows span the reading windows', async () => {
    const rows = Array.from({ length: 20_000 }, (_, n) =>
      row(`2023-05-01 ${`${n % 24}`.padStart(2, '0')}:00:00+00`),
    );
    const reader = await readerOf([{ ...older, rows }, parts[1]!]);
    const text = await textOf(reader, {
      from: instant('2023-05-01T12:00:00Z'),
      assetId: GOLD,
    });
    const kept = rows
      .map((line) => line.slice(0, 22))
      .filter((time) => time.slice(11, 13) >= '12');
    expect(text).toBe(
      `${[HEADER_13, ...kept.map(olderAsNewer), newer].join('\n')}\n`,
    );
  });

  test('end the answer where a row does not match its header', async () => {
    const reader = await readerOf([{ ...older, rows: ['1,2'] }, parts[1]!]);
    await expect(textOf(reader)).rejects.toMatchObject({ code: 'ROW_FIELDS' });
  });
});

describe('an answer without entries', () => {
  const from = instant('2023-05-03T00:00:00Z');
  const to = instant('2023-06-01T00:00:00Z');

  test("has the header of the ledger's other segments, or of the mirror's newest one", async () => {
    const parts = [
      LEDGER[1]!,
      { from: '2023-06-01', to: '2023-06-02', header: HEADER_13, rows: [] },
    ];
    const text = await textOf(await readerOf(parts), { from, to });
    expect(text).toBe(`${HEADER_13}\n`);
    const known = { newestColumns: HEADER_13.split(',') };
    const empty = await readerOf([LEDGER[1]!], known);
    expect(await textOf(empty, { from, to })).toBe(`${HEADER_13}\n`);
  });
});

describe('the size of a ledger', () => {
  const cut = { from: instant('2023-05-02T00:00:00Z') };

  test.each([
    ['whole segments', LEDGER, {}],
    ['a segment that a border cuts', LEDGER, cut],
    ['one asset', LEDGER, { assetId: GOLD }],
    ['nothing', [LEDGER[1]!], { from: instant('2023-05-03T00:00:00Z') }],
    [
      'other columns',
      [
        LEDGER[0]!,
        { from: '2023-05-03', to: '2023-06-02', header: HEADER_13, rows: [] },
      ],
      {},
    ],
  ] as const)('is that of its bytes: %s', async (_what, parts, question) => {
    const reader = await readerOf(parts);
    const query = { partyId: PARTY, ...question };
    const text = await textOf(reader, query);
    const reading = await openLedger(reader, query, signal);
    expect(await reading.measure()).toBe(BigInt(Buffer.byteLength(text)));
    const places = [
      0,
      1,
      HEADER_12.length,
      HEADER_12.length + 1,
      300,
      text.length,
    ];
    for (const start of places) {
      const chunks: Buffer[] = [];
      for await (const chunk of reading.rows(BigInt(start))) chunks.push(chunk);
      expect(Buffer.concat(chunks).toString()).toBe(text.slice(start));
    }
  });

  test('opens no whole segment that lies before the first byte', async () => {
    const opened: string[] = [];
    const reader = await readerOf(LEDGER);
    const counting: ReaderDeps = {
      ...reader,
      objects: {
        read: (key, ...rest) => {
          opened.push(key);
          return objects.read(key, ...rest);
        },
      },
    };
    const reading = await openLedger(counting, { partyId: PARTY }, signal);
    const size = await reading.measure();
    opened.length = 0;
    for await (const chunk of reading.rows(size - 2n))
      expect(chunk.toString()).toBe('6\n');
    expect(opened).toHaveLength(1);
  });

  test('has a tag that changes with what is asked for and with what is held', async () => {
    const tagOf = async (parts: readonly Part[], query: Partial<LedgerQuery>) =>
      (
        await openLedger(
          await readerOf(parts),
          { partyId: PARTY, ...query },
          signal,
        )
      ).tag;
    const reader = await readerOf(LEDGER);
    const once = await openLedger(reader, { partyId: PARTY }, signal);
    const again = await openLedger(reader, { partyId: PARTY }, signal);
    expect(again.tag).toBe(once.tag);
    const tags = [
      once.tag,
      (await openLedger(reader, { partyId: PARTY, ...cut }, signal)).tag,
      (await openLedger(reader, { partyId: PARTY, assetId: GOLD }, signal)).tag,
      await tagOf(LEDGER.slice(0, 2), {}),
    ];
    expect(new Set(tags).size).toBe(tags.length);
  });
});

describe('a lost object', () => {
  test('is an error of the answer, before the first byte where its segment is the first', async () => {
    const reader = await readerOf([LEDGER[0]!]);
    await objects.remove(`ledger/${made}.csv.gz`, signal);
    await expect(textOf(reader)).rejects.toMatchObject({
      code: 'OBJECT_MISSING',
    });
  });
});
