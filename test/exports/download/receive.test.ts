/** An answer read with and without threads: the same, whole or not. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync, zstdDecompressSync } from 'node:zlib';
import { fc } from '../../support/properties.ts';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { RowQuestion } from '../../../src/exports/download/block-reader.ts';
import type { ExportAnswer } from '../../../src/exports/ports.ts';
import {
  receive,
  type Received,
  type ReceiveOptions,
} from '../../../src/exports/download/receive-answer.ts';
import type { RequestPlan } from '../../../src/exports/planning/remaining.ts';
import { RowPool } from '../../../src/exports/download/row-pool.ts';
import { hashRow, RowDigest } from '../../../src/ledger/digest.ts';
import { layoutOf } from '../../../src/ledger/header.ts';
import { cutAt, HEADER_12, HEADER_13 } from '../../ledger/csv.ts';
import { at, OTHER, PARTY, pieces, row12, row13 } from '../ledger-double.ts';

const START = '2023-05-01T10:00:00Z';
const PLAN: RequestPlan = {
  question: { from: at(START), to: at('2023-05-01T14:00:00Z') },
  closed: [
    { from: at('2023-05-01T10:20:00Z'), to: at('2023-05-01T11:00:00Z') },
    { from: at('2023-05-01T11:30:00Z'), to: at('2023-05-01T13:00:00Z') },
  ],
  open: { from: at('2023-05-01T13:00:00Z') },
  supersedes: [],
  trims: [],
  revalidated: [],
  overlap: undefined,
  isWindow: true,
};

const QUESTION = {
  scope: { partyId: PARTY },
  plan: PLAN,
  request: PLAN.question,
};

/** Blocks of some tens of rows: an answer of many needs no megabytes. */
const SMALL = { beginningBytes: 2 ** 15, blockBytes: 2 ** 13 };

let folder: string;
let pool: RowPool;
let small: RowPool;
let files = 0;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-receive-'));
  pool = new RowPool(2);
  small = new RowPool(2, undefined, SMALL);
});
afterAll(async () => {
  await pool[Symbol.asyncDispose]();
  await small[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

function options(changes: Partial<ReceiveOptions> = {}): ReceiveOptions {
  return {
    compression: 'none',
    spoolFile: async () => {
      files += 1;
      return { name: `${files}`, path: join(folder, `${files}`) };
    },
    tailBytesMax: 2 ** 20,
    mayGoOn: () => true,
    ...changes,
  };
}

function answer(
  chunks: Iterable<Buffer> | AsyncIterable<Buffer>,
): ExportAnswer {
  return {
    form: () => 'csv',
    isFramed: true,
    chunks: (async function* all() {
      yield* chunks;
    })(),
    async [Symbol.asyncDispose]() {},
  };
}

async function received(
  chunks: Iterable<Buffer> | AsyncIterable<Buffer>,
  rowPool?: RowPool,
): Promise<Received> {
  const result = await receive(answer(chunks), QUESTION, options({ rowPool }));
  if (result.state !== 'complete') throw new Error('not whole');
  return result;
}

/** All that must not depend on who read the rows, and the objects' bytes. */
async function facts({
  segments,
  tail,
  before,
  ...rest
}: Received): Promise<unknown> {
  const objects = segments.map(async ({ spooled, ...range }) => {
    if (spooled === undefined) return range;
    const { name: _name, path, ...sums } = spooled;
    return { ...range, ...sums, csv: await readFile(path, 'latin1') };
  });
  const header = Buffer.from('header');
  return {
    ...rest,
    tail: tail?.result(header),
    before: before.plain(),
    segments: await Promise.all(objects),
  };
}

interface Shape {
  readonly columns: 12 | 13;
  readonly rows: number;
  readonly stepSeconds: number;
  readonly seed: number;
  readonly lineEnd: '\n' | '\r\n';
  readonly quirks: boolean;
}

const shape: fc.Arbitrary<Shape> = fc.record({
  columns: fc.constantFrom(12 as const, 13 as const),
  rows: fc.integer({ min: 400, max: 1500 }),
  stepSeconds: fc.constantFrom(13, 29, 7919),
  seed: fc.nat(1000),
  lineEnd: fc.constantFrom('\n' as const, '\r\n' as const),
  quirks: fc.boolean(),
});

/**
 * Rows of the party and of others, inside and outside of what is asked, in and out of
 * order.
 */
function csvOf({
  columns,
  rows,
  stepSeconds,
  seed,
  lineEnd,
  quirks,
}: Shape): string[] {
  const second = Number(at(START) / 1_000_000n) + (quirks ? 19_800 : 0);
  const lines = Array.from({ length: rows }, (_, index) => {
    const text = new Date(
      (second - 900 + ((index * stepSeconds + seed) % 18_000)) * 1000,
    ).toISOString();
    const time = `${text.slice(0, 10)} ${text.slice(11, 19)}.${(index * 7919) % 1000}${quirks ? '+05:30' : '+00'}`;
    const entry = {
      time,
      quantity: BigInt(index % 977),
      ...(index % 11 === 3 ? { from: OTHER } : {}),
      ...(index % 13 === 5 ? { from: OTHER, to: PARTY } : {}),
    };
    const row = columns === 12 ? row12(entry) : row13(entry);
    const extra =
      index % 17 === 0 ? `"a, ""b""${lineEnd}c"` : 'plain, quoted'.slice(0, 5);
    return quirks ? `${row},${extra}` : row;
  });
  const header = `${columns === 12 ? HEADER_12 : HEADER_13}${quirks ? ',note' : ''}`;
  return [header, ...lines].map((line) => line + lineEnd);
}

describe('an answer that row threads read', () => {
  test('is read as without threads however its bytes are cut, with the sum of the kept rows', async () => {
    await fc.assert(
      fc.asyncProperty(
        shape,
        fc.array(fc.nat(), { maxLength: 40 }),
        async (made, places) => {
          const lines = csvOf(made);
          const bytes = Buffer.from(lines.join(''));
          expect(bytes.length).toBeGreaterThan(2 * SMALL.beginningBytes);
          const threaded = await received(cutAt(bytes, places), small);
          expect(await facts(threaded)).toEqual(
            await facts(await received(pieces(bytes, 65_536))),
          );
          expect(small.started).toBe(2);
          const csv = await Promise.all(
            threaded.segments.flatMap(({ spooled }) =>
              spooled === undefined ? [] : [readFile(spooled.path)],
            ),
          );
          const kept = csv.flatMap((object) =>
            object.toString().split(made.lineEnd),
          ).length;
          expect(kept).toBeGreaterThan(100);
        },
      ),
      { numRuns: 12 },
    );
  });

  test('gives every object the digest of its rows', async () => {
    const bytes = Buffer.from(
      csvOf({
        columns: 12,
        rows: 8000,
        stepSeconds: 2,
        seed: 1,
        lineEnd: '\n',
        quirks: false,
      }).join(''),
    );
    const { segments } = await received(pieces(bytes, 50_000), pool);
    for (const { spooled } of segments) {
      const [, ...rows] = (await readFile(spooled?.path ?? '', 'utf8'))
        .trimEnd()
        .split('\n');
      const sum = new RowDigest();
      for (const row of rows) sum.add(hashRow(Buffer.from(row), 0, row.length));
      expect(spooled).toMatchObject({ rows: rows.length, digest: sum.hex() });
    }
    expect(segments.length).toBe(3);
  });
});

describe('an object that row threads read', () => {
  test.each([
    { compression: 'none', plain: (bytes: Buffer) => bytes },
    { compression: 'gzip', plain: (bytes: Buffer) => gunzipSync(bytes) },
    {
      compression: 'zstd',
      plain: (bytes: Buffer) => zstdDecompressSync(bytes),
    },
  ] as const)(
    'has the rows as they were sent, stored as $compression, though blocks are reused',
    async ({ compression, plain }) => {
      const lines = csvOf({
        columns: 13,
        rows: 6000,
        stepSeconds: 2,
        seed: 1,
        lineEnd: '\n',
        quirks: false,
      });
      const bytes = Buffer.from(lines.join(''));
      expect(bytes.length).toBeGreaterThan(50 * SMALL.blockBytes);
      const whole = { from: at('2023-05-01T00:00:00Z') };
      const plan: RequestPlan = {
        ...PLAN,
        closed: [],
        open: whole,
        question: whole,
      };
      const result = await receive(
        answer(pieces(bytes, 5_000)),
        { ...QUESTION, plan, request: plan.question },
        options({ rowPool: small, compression }),
      );
      if (result.state !== 'complete') throw new Error('not whole');
      const path = result.segments[0]?.spooled?.path ?? '';
      const kept = lines.filter((line) => line.includes(PARTY));
      expect(plain(await readFile(path)).toString()).toBe(
        [lines[0], ...kept].join(''),
      );
    },
  );
});

describe('a late error with and without row threads', () => {
  const lines = csvOf({
    columns: 12,
    rows: 9000,
    stepSeconds: 1,
    seed: 0,
    lineEnd: '\n',
    quirks: false,
  });
  const status =
    '{"error":{"code":13,"message":"Internal error","details":[]}}';
  const without = (index: number, bad: string): string =>
    lines.with(index, bad).join('');
  const late = lines.length - 1200;

  async function failure(
    csv: string,
    rowPool: RowPool | undefined,
    broken?: Error,
  ): Promise<unknown> {
    async function* chunks(): AsyncGenerator<Buffer> {
      yield* pieces(Buffer.from(csv), 65_536);
      if (broken !== undefined) throw broken;
    }
    const error = await received(chunks(), rowPool).then(
      () => undefined,
      (reason: unknown) => reason as Error & { code: string; meta: unknown },
    );
    return {
      name: error?.name,
      code: error?.code,
      message: error?.message,
      meta: error?.meta,
    };
  }

  test.each([
    ['SOURCE_ERROR_IN_STREAM', lines.join('') + status],
    ['SOURCE_ERROR_IN_STREAM', `${lines.join('')}${status}\n`],
    ['SOURCE_ERROR_IN_STREAM', without(late, `2023-05-01 10:0${status}\n`)],
    ['SOURCE_TRUNCATED', lines.join('').slice(0, -1)],
    ['ROW_FIELDS', without(late, `${(lines[late] ?? '').trimEnd()},1\n`)],
    ['ROW_TIME', without(late, (lines[late] ?? '').replace('2023', '20x3'))],
    ['SOURCE_TRUNCATED', without(late, `"${lines[late] ?? ''}`)],
  ])('has the same code: %s %#', async (code, csv) => {
    const alone = await failure(csv, undefined);
    expect(alone).toMatchObject({ code });
    expect(await failure(csv, pool)).toEqual(alone);
  });

  test('tells what was wrong before a stream broke off', async () => {
    const bad = without(late, `${(lines[late] ?? '').trimEnd()},1\n`);
    expect(await failure(bad, pool, new Error('broke'))).toMatchObject({
      code: 'ROW_FIELDS',
    });
    expect(
      await failure(lines.join(''), pool, new Error('broke')),
    ).toMatchObject({
      message: 'broke',
    });
  });

  test('is ROW_TOO_LARGE for a row beyond the limit', async () => {
    const endless = `${lines.join('')}${'x'.repeat(17 * 2 ** 20)}`;
    expect(await failure(endless, pool)).toMatchObject({
      code: 'ROW_TOO_LARGE',
    });
  });

  test('is the error of a full disk', async () => {
    const bytes = Buffer.from(lines.join(''));
    const full = options({
      rowPool: pool,
      spoolFile: async () => ({ name: 'full', path: '/dev/full' }),
    });
    await expect(
      receive(answer(pieces(bytes, 65_536)), QUESTION, full),
    ).rejects.toMatchObject({
      code: 'SPOOL_ENOSPC',
    });
  });
});

describe('the pool of row threads', () => {
  const bytes = Buffer.from(
    csvOf({
      columns: 12,
      rows: 20_000,
      stepSeconds: 1,
      seed: 0,
      lineEnd: '\n',
      quirks: false,
    }).join(''),
  );
  const poison = { layout: undefined } as unknown as RowQuestion;

  test('fails the answer of a thread that dies and gives the next answer another', async () => {
    /**
     * What comes before the second block kills its thread, while the block waits for it.
     */
    class Mortal extends RowPool {
      blocks = 0;

      override read(
        ...block: Parameters<RowPool['read']>
      ): ReturnType<RowPool['read']> {
        this.blocks += 1;
        if (this.blocks === 2)
          super.read(poison, Buffer.alloc(8)).catch(() => {
            deaths += 1;
          });
        return super.read(...block);
      }
    }
    let deaths = 0;
    await using mortal = new Mortal(1);
    await expect(received(pieces(bytes, 65_536), mortal)).rejects.toMatchObject(
      {
        code: 'ROW_THREAD_LOST',
        name: 'RetryableError',
      },
    );
    expect(deaths).toBe(1);
    expect((await received(pieces(bytes, 65_536), mortal)).rows).toBe(20_000);
  });

  test('gives up a thread that takes too long', async () => {
    await using impatient = new RowPool(1, 1);
    await expect(
      received(pieces(bytes, 65_536), impatient),
    ).rejects.toMatchObject({
      code: 'ROW_THREAD_LOST',
    });
  });

  test('is free for the next answer after one was given up', async () => {
    const stop = new AbortController();
    async function* chunks(): AsyncGenerator<Buffer> {
      for (const [index, chunk] of pieces(bytes, 65_536).entries()) {
        if (index === 40) stop.abort(new Error('stopped'));
        stop.signal.throwIfAborted();
        yield chunk;
      }
    }
    await expect(received(chunks(), pool)).rejects.toThrow('stopped');
    expect(pool.waiting).toBe(0);
    expect((await received(pieces(bytes, 65_536), pool)).rows).toBe(20_000);
  });

  test('is shared by answers that are read at once', async () => {
    const alone = await facts(await received(pieces(bytes, 65_536)));
    const together = await Promise.all(
      [65_536, 10_000, 1_000_000].map(async (size) =>
        facts(await received(pieces(bytes, size), pool)),
      ),
    );
    for (const one of together) expect(one).toEqual(alone);
  });

  test('starts no thread for a short answer', async () => {
    await using unused = new RowPool(1);
    await received(
      pieces(bytes.subarray(0, bytes.indexOf('\n') + 1), 700),
      unused,
    );
    expect(unused.started).toBe(0);
  });

  test('refuses work once it is closed', async () => {
    const closed = new RowPool(1);
    await closed[Symbol.asyncDispose]();
    const question = {
      layout: layoutOf(HEADER_12.split(',')),
    } as unknown as RowQuestion;
    await expect(closed.read(question, Buffer.alloc(8))).rejects.toMatchObject({
      code: 'ROW_THREAD_LOST',
    });
  });
});
