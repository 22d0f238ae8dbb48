/**
 * From release 0.73 on the source filters by a time that it does not send, up to two
 * seconds behind the one that is: whatever the borders, each entry belongs to one range,
 * by the time that is sent.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fc } from '../../support/properties.ts';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { formatInstant, SECOND_MICROS } from '../../../src/time/time.ts';
import { receive } from '../../../src/exports/download/receive-answer.ts';
import { planRequest } from '../../../src/exports/planning/remaining.ts';
import { hashRow, RowDigest } from '../../../src/ledger/digest.ts';
import { HEADER_13 } from '../../ledger/csv.ts';
import { at, PARTY, row13 } from '../ledger-double.ts';

const START = at('2023-05-01T10:58:50Z');
const SECONDS = 20;
const RIGHT = { bounds: 'right', sides: 'both' } as const;
const FAR = at('2024-01-01T00:00:00Z');
let folder: string;
let files = 0;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-membership-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** Times at the very borders of seconds are as likely as any other. */
const fraction = fc.oneof(
  fc.constantFrom(0n, 1n, 999_998n, 999_999n),
  fc.integer({ min: 0, max: 999_999 }).map(BigInt),
);
const entry = fc
  .record({
    second: fc.integer({ min: 0, max: SECONDS - 1 }),
    fraction,
    /** How far the time by which it is filtered lies behind. */
    lag: fc.oneof(
      fc.constantFrom(0n, 1n, 1_999_999n),
      fc.integer({ min: 0, max: 1_999_999 }).map(BigInt),
    ),
    quantity: fc.bigInt({ min: 1n, max: 3n }),
  })
  .map(({ second, fraction: micros, lag, quantity }) => {
    const time = START + BigInt(second) * SECOND_MICROS + micros;
    const text = `${formatInstant(time).slice(0, 10)} ${formatInstant(time).slice(11, 19)}.${String(micros).padStart(6, '0')}+00`;
    return { filteredBy: time + lag, row: row13({ time: text, quantity }) };
  });
const borders = fc
  .uniqueArray(fc.integer({ min: 1, max: SECONDS - 1 }), { maxLength: 6 })
  .map((cuts) => [0, ...cuts.toSorted((a, b) => a - b), SECONDS]);

test('every entry is in one range, whatever the borders', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(entry, { maxLength: 40 }),
      borders,
      async (entries, cuts) => {
        const sum = new RowDigest();
        for (const [index, end] of cuts.slice(1).entries()) {
          const from = START + BigInt(cuts[index] ?? 0) * SECOND_MICROS;
          const to = START + BigInt(end) * SECOND_MICROS;
          const plan = planRequest({
            from,
            to,
            closedTo: FAR,
            isWindow: true,
            now: 0n,
            coverage: [],
            profile: RIGHT,
          });
          if (plan === undefined) throw new Error('nothing to ask');
          const { from: asked = 0n, to: until = 0n } = plan.question;
          const rows = entries.filter(
            ({ filteredBy }) => filteredBy >= asked && filteredBy < until,
          );
          const csv = Buffer.from(
            [HEADER_13, ...rows.map(({ row }) => row)]
              .map((line) => `${line}\n`)
              .join(''),
          );
          const received = await receive(
            answerOf(csv),
            { scope: { partyId: PARTY }, plan, request: plan.question },
            {
              compression: 'none',
              spoolFile: async () => {
                files += 1;
                return { name: `${files}`, path: join(folder, `${files}`) };
              },
              tailBytesMax: 1000,
              mayGoOn: () => true,
            },
          );
          if (received.state !== 'complete') throw new Error('cancelled');
          for (const { spooled } of received.segments) {
            if (spooled !== undefined)
              sum.merge(RowDigest.fromHex(spooled.digest, spooled.rows));
          }
        }
        const expected = new RowDigest();
        for (const { row } of entries)
          expected.add(hashRow(Buffer.from(row), 0, row.length));
        expect([sum.rows, sum.hex()]).toEqual([expected.rows, expected.hex()]);
      },
    ),
    { numRuns: 60 },
  );
});

function answerOf(csv: Buffer): Parameters<typeof receive>[0] {
  return {
    form: () => 'csv',
    isFramed: true,
    chunks: (async function* () {
      yield csv;
    })(),
    async [Symbol.asyncDispose]() {
      // Nothing is held.
    },
  };
}
