/** Holds an answer against what is known already. Pure. */
import type { Received } from '../download/receive-answer.ts';
import type { RequestPlan, Overlap } from '../planning/remaining.ts';
import type { ReceivedSegment } from '../download/answer-rows.ts';
import type { Coverage } from '../../catalog/coverage-rows.ts';

export type OverlapFinding =
  /** `sides changed`: the source now sends more of each movement; what it sent before is all there. */
  | { readonly state: 'verified' | 'row form changed' | 'sides changed' }
  /**
   * `fewer`: known rows are missing, the answer is not to be trusted; `repeated`: all of them come as often again, as
   * other rows then do as well; `other`: there is more, or different.
   */
  | {
      readonly state: 'fewer' | 'repeated' | 'other';
      readonly expected: OverlapSum;
      readonly received: OverlapSum;
    };

type OverlapSum = Readonly<Record<'rows' | 'digest', string>>;

/**
 * Every continuation asks again for something whose answer is known. What comes back says whether the
 * question was understood, whether old rows are still served, and whether late ones have appeared.
 */
export function compareOverlap(
  { tail, sides }: Overlap,
  received: Received,
): OverlapFinding {
  const { before } = received;
  const digest = before.digest.hex();
  const hasOtherSides = sides !== 'unknown' && sides !== received.layout.sides;
  // Of both sides sent before, only those that leave come now: how many these were is not known.
  const rows = hasOtherSides && sides === 'from' ? received.beforeFrom : before.rows;
  if (hasOtherSides && (sides === 'both' || rows === tail.rows))
    return { state: 'sides changed' };
  if (!hasOtherSides && rows === tail.rows) {
    // Another release or time zone writes every row differently: then only the count can be compared.
    if (tail.rows > 0 && before.form(received.header) !== tail.rowForm)
      return { state: 'row form changed' };
    if (digest === tail.digest) return { state: 'verified' };
  }
  return {
    state:
      rows < tail.rows ? 'fewer' : isRepeated(tail, rows, digest) ? 'repeated' : 'other',
    expected: { rows: String(tail.rows), digest: tail.digest },
    received: { rows: String(rows), digest },
  };
}

/** Sums of rows add up: those of rows that come twice are twice theirs. */
function isRepeated(
  { rows, digest }: Overlap['tail'],
  received: number,
  sum: string,
): boolean {
  if (rows === 0 || received % rows !== 0) return false;
  const times = BigInt(received / rows);
  return BigInt(`0x${sum}`) === BigInt.asUintN(256, BigInt(`0x${digest}`) * times);
}

/** Of what must come again in the same way, whatever is new meanwhile. Where nothing is closed, that is all of it. */
export function sumsOf({ before, segments, openLine = '' }: Received): string {
  const closed = segments.filter(({ open }) => !open);
  const digests = (closed.length === 0 ? segments : closed).map(
    ({ spooled }) => spooled?.digest ?? 'empty',
  );
  return [before.rows, before.digest.hex(), ...digests, openLine].join(' ');
}

/** The segment that holds the same rows as one that is known, in the same range. */
export function isSame(
  segment: ReceivedSegment,
  row: Coverage,
  sides: Coverage['sides'],
): boolean {
  const { from, to, open, spooled } = segment;
  return (
    !open &&
    from === row.from &&
    to === row.to &&
    spooled !== undefined &&
    BigInt(spooled.rows) === row.rows &&
    spooled.digest === row.content?.digest &&
    spooled.rowForm === row.content.rowForm &&
    sides === row.sides
  );
}

/** Rows of the present that was known have vanished: as with the overlap, what is known stays. */
export function fewerInOpen(
  { supersedes }: RequestPlan,
  { segments, layout }: Received,
): { readonly knownRows: string; readonly receivedRows: string } | undefined {
  for (const row of supersedes.filter(({ open }) => open)) {
    const hasOtherSides = row.sides !== 'unknown' && row.sides !== layout.sides;
    // What lies in its range, whether closed by now or not.
    const inside = segments.filter(
      ({ from, to }) => from < row.to && (to === undefined || to > row.from),
    );
    const received = rowsOf(inside);
    if (!hasOtherSides && received < row.rows)
      return { knownRows: String(row.rows), receivedRows: String(received) };
  }
  return undefined;
}

/** What is lost in the store and loaded is the only copy. */
export function isHeld({ isFaulty, isLoaded }: Coverage): boolean {
  return isFaulty !== true || isLoaded === true;
}

/** @returns the closed segments that an answer would replace by less */
export function shrinking(
  { supersedes }: RequestPlan,
  { segments }: Received,
): readonly Coverage[] {
  const believed = supersedes.filter((row) => !row.open && isHeld(row) && row.rows > 0n);
  const known = believed.reduce((sum, { rows }) => sum + rows, 0n);
  return rowsOf(segments.filter(({ open }) => !open)) >= known ? [] : believed;
}

export function rowsOf(segments: readonly ReceivedSegment[]): bigint {
  return segments.reduce((sum, { spooled }) => sum + BigInt(spooled?.rows ?? 0), 0n);
}
