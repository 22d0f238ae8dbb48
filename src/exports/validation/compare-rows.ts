/** Compares a response with the known coverage. Pure. */
import type { Received } from '../download/receive-answer.ts';
import type { PlannedRequest } from '../planning/next-window.ts';
import type { RequestPlan, Overlap } from '../planning/remaining.ts';
import { NO_ROWS_DIGEST } from '../../ledger/digest.ts';
import type { Range } from '../../ledger/ranges.ts';
import { BEGINNING } from '../../time/time.ts';
import type { TailSum } from '../../ledger/tail-sum.ts';
import type { ReceivedSegment } from '../download/answer-rows.ts';
import type { Coverage } from '../../catalog/coverage-rows.ts';

/** The result of an overlap check. */
export type OverlapFinding =
  /** The known rows were returned unchanged. */
  | { readonly state: 'verified' }
  /**
   * The source returned the same number of rows, but encoded differently, so that their
   * sums cannot be compared.
   */
  | { readonly state: 'row form changed' }
  /**
   * The source now sends other sides of each movement than before. That does not mean
   * that any known row is missing.
   */
  | { readonly state: 'sides changed' }
  | {
      /**
       * `fewer`: known rows are missing. `repeated`: every known row was sent several
       * times, so new rows may have been too. `other`: there are more rows, or
       * different ones.
       */
      readonly state: 'fewer' | 'repeated' | 'other';
      readonly expected: OverlapSum;
      readonly received: OverlapSum;
    };

/** A count as a decimal string, and a digest, as shown in evidence. */
interface OverlapSum {
  readonly rows: string;
  readonly digest: string;
}

/**
 * Compares the rows that were received before the first range with the sum of the known
 * rows. Every continuation requests some known rows again, to show whether the source
 * understood the request, still serves old rows, and has added rows late.
 */
export function compareOverlap(
  { tail, sides }: Overlap,
  received: Received,
): OverlapFinding {
  const { before } = received;
  const digest = before.digest.hex();
  const hasOtherSides = sides !== 'unknown' && sides !== received.layout.sides;
  // If only outgoing rows are known and the source now sends both sides, compare only
  // the outgoing rows. In the opposite case nothing can be compared, because it is
  // unknown how many of the known rows are outgoing.
  const rows =
    hasOtherSides && sides === 'from' ? received.beforeFrom : before.rows;
  if (hasOtherSides && (sides === 'both' || rows === tail.rows))
    return { state: 'sides changed' };
  if (!hasOtherSides && rows === tail.rows) {
    // A different release or time zone writes every row differently, so only the counts
    // can be compared.
    if (tail.rows > 0 && before.form(received.header) !== tail.rowForm)
      return { state: 'row form changed' };
    if (digest === tail.digest) return { state: 'verified' };
  }
  return {
    state: differenceOf(tail, rows, digest),
    expected: { rows: String(tail.rows), digest: tail.digest },
    received: { rows: String(rows), digest },
  };
}

/**
 * Returns the range before the requested ones if the response contains its rows too,
 * because the request has no start; undefined if there is no such range.
 */
export function rangeShownToo({
  plan,
  request,
}: Pick<PlannedRequest, 'plan' | 'request'>): Range | undefined {
  if ((request.from ?? BEGINNING) > BEGINNING) return undefined;
  const { overlap, closed, open } = plan;
  const to = overlap?.to ?? closed[0]?.from ?? open?.from ?? BEGINNING;
  return to > BEGINNING ? { from: BEGINNING, to } : undefined;
}

/**
 * Compares the number of rows that the response has in the range of `rangeShownToo`
 * with the known number. More rows mean that the node that sent the earlier segments
 * keeps fewer entries than this one. Fewer rows are ignored here: audits find what the
 * source has lost.
 * @returns undefined if there are not more rows, or the numbers cannot be compared
 */
export function compareShownToo(
  planned: Pick<PlannedRequest, 'plan' | 'request' | 'target'>,
  { before, leftOut, layout }: Received,
): Extract<OverlapFinding, { expected: unknown }> | undefined {
  const range = rangeShownToo(planned);
  const { overlap, open } = planned.plan;
  // If the open range has an end, `leftOut.range` also counts the rows after it, so the
  // numbers cannot be compared.
  if (range === undefined || open === undefined || open.to !== undefined)
    return undefined;
  const known = planned.target.coverage.filter(({ to }) => to <= range.to);
  const isComparable = known.every(
    ({ assetId, sides, rows }) =>
      assetId === planned.target.assetId &&
      (rows === 0n || sides === layout.sides),
  );
  const knownRows = known.reduce((sum, { rows }) => sum + rows, 0n);
  const shownRows = leftOut.range + BigInt(before.rows);
  if (!isComparable || shownRows <= knownRows) return undefined;
  return {
    state: 'other',
    expected: {
      rows: String(knownRows),
      digest: overlap?.tail.digest ?? NO_ROWS_DIGEST,
    },
    received: { rows: String(shownRows), digest: before.digest.hex() },
  };
}

function differenceOf(
  tail: TailSum,
  rows: number,
  digest: string,
): 'fewer' | 'repeated' | 'other' {
  if (rows < tail.rows) return 'fewer';
  return isRepeated(tail, rows, digest) ? 'repeated' : 'other';
}

/**
 * Whether every known row was sent several times. Digests add up: if every row is sent
 * twice, the digest is twice that of the rows.
 */
function isRepeated(
  { rows, digest }: TailSum,
  received: number,
  sum: string,
): boolean {
  if (rows === 0 || received % rows !== 0) return false;
  const times = BigInt(received / rows);
  return (
    BigInt(`0x${sum}`) === BigInt.asUintN(256, BigInt(`0x${digest}`) * times)
  );
}

/**
 * Sums the rows that must be the same in any other response to the same plan, whatever
 * entries are added in between: those of the closed ranges, or all rows if none is
 * closed.
 */
export function sumsOf({ before, segments, openLine = '' }: Received): string {
  const closed = segments.filter(({ open }) => !open);
  const digests = (closed.length === 0 ? segments : closed).map(
    ({ spooled }) => spooled?.digest ?? 'empty',
  );
  return [before.rows, before.digest.hex(), ...digests, openLine].join(' ');
}

/** Whether a received segment has the same rows as known coverage of the same range. */
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

/**
 * Returns the known and the received number of rows of an open segment that the
 * response would replace with fewer rows; undefined if no open segment would lose rows.
 */
export function fewerInOpen(
  { supersedes }: RequestPlan,
  { segments, layout }: Received,
): { readonly knownRows: string; readonly receivedRows: string } | undefined {
  for (const row of supersedes.filter(({ open }) => open)) {
    const hasOtherSides = row.sides !== 'unknown' && row.sides !== layout.sides;
    // This response may close part of the open segment's range.
    const inside = segments.filter(
      ({ from, to }) => from < row.to && (to === undefined || to > row.from),
    );
    const received = rowsOf(inside);
    if (!hasOtherSides && received < row.rows)
      return { knownRows: String(row.rows), receivedRows: String(received) };
  }
  return undefined;
}

/**
 * Whether this mirror still has the rows of a segment. If its object is damaged, the
 * loaded rows are the only copy.
 */
export function isHeld({ isFaulty, isLoaded }: Coverage): boolean {
  return isFaulty !== true || isLoaded === true;
}

/**
 * Returns the closed segments that the response would replace with fewer rows; empty if
 * there are none.
 */
export function shrinking(
  { supersedes }: RequestPlan,
  { segments }: Received,
): readonly Coverage[] {
  const believed = supersedes.filter(
    (row) => !row.open && isHeld(row) && row.rows > 0n,
  );
  const known = believed.reduce((sum, { rows }) => sum + rows, 0n);
  return rowsOf(segments.filter(({ open }) => !open)) >= known ? [] : believed;
}

export function rowsOf(segments: readonly ReceivedSegment[]): bigint {
  return segments.reduce(
    (sum, { spooled }) => sum + BigInt(spooled?.rows ?? 0),
    0n,
  );
}
