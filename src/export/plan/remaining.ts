/**
 * What is left to ask: target minus coverage, computed before every question and never remembered.
 * Pure; the warehouse's constraint (no instant covered twice) is what it relies on.
 */
import { BEGINNING, DAY_MICROS, type Micros, SECOND_MICROS } from '../../core/time.ts';
import type { Coverage, SourceProfile, TailSum } from '../ports.ts';
import { overlaps, type Range, subtract, union } from './ranges.ts';

/**
 * A known tail older than this may have fallen to the source's retention (half of the six months that
 * nodes keep by default), so that its absence would prove nothing.
 */
const ANCHOR_AGE_MAX_MICROS = 90n * DAY_MICROS;
/**
 * From release 0.73 on the bounds apply to an entry's own time, up to some microseconds behind the
 * block time that is exported: an end is asked for this much later, and cut locally.
 */
const END_PAD_MICROS = 2n * SECOND_MICROS;

export interface Target {
  readonly assetId?: string | undefined;
  readonly from: Micros;
  /** Absent: up to the present. */
  readonly to?: Micros | undefined;
  /** Nothing newer than this is closed. A whole second. */
  readonly closedTo: Micros;
  /** Only a stretch of what is wanted: the present is left to the last one. */
  readonly isWindow?: boolean;
}

export interface AskPlan {
  /** What is asked; without `from`: all times. */
  readonly question: { readonly from?: Micros; readonly to?: Micros };
  /** What becomes closed by the answer: disjoint, in order. */
  readonly closed: readonly Range[];
  /** The present, that stays open; without `to`: up to its newest entry. */
  readonly open?: { readonly from: Micros; readonly to?: Micros } | undefined;
  /** Coverage whose place the answer takes. */
  readonly supersedes: readonly Coverage[];
  /** The tail of what is known before the first range: the answer must contain it. */
  readonly anchor?: Anchor | undefined;
  /** An open segment that lies whole within `closed`, as a range of its own: closed as it stands if it comes back the same. */
  readonly standing?: Coverage | undefined;
  readonly isWindow: boolean;
}

export interface Anchor {
  readonly to: Micros;
  readonly tail: TailSum;
  readonly sides: Coverage['sides'];
}

/**
 * @param distrusted known coverage in this range is asked for again and superseded
 * @returns undefined where nothing is left to ask
 */
export function planAsk(
  target: Target,
  coverage: readonly Coverage[],
  profile: SourceProfile,
  distrusted?: Range,
): AskPlan | undefined {
  const isKnown = (row: Coverage): boolean =>
    !row.open &&
    (row.assetId === undefined || row.assetId === target.assetId) &&
    (distrusted === undefined || !overlaps(row, distrusted));
  const known = coverage.filter(isKnown);
  const others = coverage.filter((row) => !isKnown(row));

  const closedEnd = target.to === undefined ? target.closedTo : min(target.to, target.closedTo);
  const wanted = subtract({ from: target.from, to: closedEnd }, known);
  const taken = takeWhole(wanted, others, known, target);
  const { open, supersedes } = taken;
  const standing = supersedes.find(
    (row) =>
      row.open &&
      row.assetId === target.assetId &&
      taken.closed.some((range) => row.from >= range.from && row.to <= range.to),
  );
  const closed = standing === undefined ? taken.closed : divide(taken.closed, standing);
  const first = closed[0]?.from ?? open?.from;
  if (first === undefined) return undefined;
  const anchor = anchorAt(first, known, target);
  const from = anchor?.tail.from ?? first;
  const last = open === undefined ? closed.at(-1)?.to : open.to;
  return {
    question: questionOf(from, last, profile),
    closed,
    open,
    supersedes,
    anchor,
    standing,
    isWindow: target.isWindow === true,
  };
}

/** Never an end without a start, and only where the release is known to apply both. */
function questionOf(from: Micros, last: Micros | undefined, profile: SourceProfile): AskPlan['question'] {
  if (last !== undefined && profile.bounds === 'right') {
    return { from, to: last + (profile.sides === 'from' ? 0n : END_PAD_MICROS) };
  }
  return from === BEGINNING ? {} : { from };
}

/** The same ranges, with borders where `inner` begins and ends. */
function divide(ranges: readonly Range[], inner: Range): Range[] {
  return ranges.flatMap(({ from, to }) => {
    const borders = [from, ...[inner.from, inner.to].filter((at) => at > from && at < to), to];
    return borders.slice(1).map((end, index) => ({ from: borders[index] ?? from, to: end }));
  });
}

/**
 * A segment is replaced whole or not at all: where a range that is asked for touches one of another
 * scope, or an open one, the range grows until it holds all of it.
 */
function takeWhole(
  wanted: readonly Range[],
  others: readonly Coverage[],
  known: readonly Coverage[],
  target: Target,
): Pick<AskPlan, 'closed' | 'open' | 'supersedes'> {
  const supersedes: Coverage[] = [];
  for (let closed = union(wanted); ;) {
    const open = openPart(target, known, supersedes);
    const isTouched = (row: Coverage): boolean =>
      closed.some((range) => overlaps(range, row)) ||
      (open !== undefined && row.to > open.from && (open.to === undefined || row.from < open.to));
    const touched = others.filter((row) => !supersedes.includes(row) && isTouched(row));
    if (touched.length === 0) return { closed, open, supersedes };
    supersedes.push(...touched);
    const grown = touched.map(({ from, to, open: isOpen }) => ({
      from,
      to: isOpen ? min(to, target.closedTo) : to,
    }));
    closed = union([...closed, ...grown]);
  }
}

/** What lies behind everything closed. Where an old open segment is replaced, up to the present again. */
function openPart(
  target: Target,
  known: readonly Coverage[],
  supersedes: readonly Coverage[],
): { from: Micros; to?: Micros } | undefined {
  if (target.isWindow === true) return undefined;
  const to = supersedes.some((row) => row.open) ? undefined : target.to;
  const from = [...known, ...supersedes.filter((row) => !row.open)].reduce(
    (latest, row) => max(latest, row.to),
    max(target.from, target.closedTo),
  );
  if (to === undefined) return { from };
  return from < to ? { from, to } : undefined;
}

function anchorAt(first: Micros, known: readonly Coverage[], target: Target): Anchor | undefined {
  const row = known.find((candidate) => candidate.to === first && candidate.assetId === target.assetId);
  if (row?.tail === undefined || first - row.tail.from > ANCHOR_AGE_MAX_MICROS) return undefined;
  return { to: first, tail: row.tail, sides: row.sides };
}

function min(left: Micros, right: Micros): Micros {
  return left < right ? left : right;
}

function max(left: Micros, right: Micros): Micros {
  return left > right ? left : right;
}
