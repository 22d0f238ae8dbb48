/** Entries whose values are at the edges of what engines hold. */
import { entry, type SegmentRows } from '../lake/entries-double.ts';

const A = 'aa'.repeat(32);
const B = 'bb'.repeat(32);
const LARGEST = '9'.repeat(38);
const QUANTITIES = [
  LARGEST,
  '9223372036854775808',
  '9007199254740993',
  '0',
  '1',
];
const TIMES = [
  '2023-04-30T23:59:59.999999Z',
  '2023-05-01T00:00:00.000000Z',
  '2023-05-31T23:59:59.999999Z',
  '2023-06-15T12:00:00.000001Z',
];

/** The first effect has the most digits that a column holds, the fourth is missing. */
function effectAt(index: number, quantity: string): string {
  if (index === 0) return `-${LARGEST}`;
  return index === 3 ? '' : `-${quantity}`;
}

/** A segment with rows in three months. */
export function segmentOf(number: number): SegmentRows {
  const rows = TIMES.flatMap((time) =>
    QUANTITIES.map((quantity, index) =>
      entry({
        party_id: A,
        account_from_party_id: A,
        account_to_party_id: B,
        vega_time: time,
        quantity,
        effect: effectAt(index, quantity),
      }),
    ),
  );
  return { segmentId: BigInt(number), rows };
}

/** As `engine.py` shows them: quantity, effect, microseconds, month. */
export function shownRows(
  segments: readonly SegmentRows[],
): readonly (readonly (string | null)[])[] {
  const rows = segments.flatMap((segment) => segment.rows);
  return rows
    .map(({ quantity, effect, vega_time: time }) => [
      quantity,
      effect === undefined || effect === '' ? null : effect,
      `${BigInt(Date.parse(time)) * 1000n + BigInt(time.slice(-4, -1))}`,
      time.slice(0, 7),
    ])
    .toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
}
