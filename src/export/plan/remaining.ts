/**
 * What is left to ask of a ledger: target minus coverage, and the request that brings it. Known segments that a
 * range touches are never grown into it: what lies outside is kept, and only its border moves. Pure.
 */
import { BEGINNING, ceilSecond, DAY_MICROS, type Micros, SECOND_MICROS } from '../../core/time.ts';
import type { Coverage } from '../store/coverage-rows.ts';
import type { SourceProfile } from '../store/source-profile.ts';
import type { TailSum } from '../../ledger/objects/coverage-record.ts';
import { overlaps, type Range, subtract, union } from './ranges.ts';

/** Half of the six months that nodes of the public service keep by default. */
export const RETENTION_MICROS = 90n * DAY_MICROS;
/**
 * From release 0.73 on the bounds apply to an entry's own time, up to some microseconds behind the block time that
 * is exported: an end is asked for this much later, and cut locally.
 */
const END_PAD_MICROS = 2n * SECOND_MICROS;
/** Behind every instant there is. */
const NO_END: Micros = 10n ** 18n;

export interface Target {
  readonly assetId?: string | undefined;
  readonly from: Micros;
  /** Absent: up to the present. */
  readonly to?: Micros | undefined;
  /** Nothing newer than this is closed. A whole second. */
  readonly closedTo: Micros;
  /** Only a window of what is wanted: the present is left to the last one. */
  readonly isWindow?: boolean;
  /** The source's own time. */
  readonly now: Micros;
  /** How long the source keeps entries for certain: the absence of an older tail would prove nothing. 90 days by default. */
  readonly retentionMicros?: Micros | undefined;
  /** Of the source's chain; absent where no list is known. */
  readonly epoch?: number | undefined;
  readonly trust?: Trust | undefined;
}

/** Which coverage is asked for again, though it is known, and which is kept, though the source contradicts it. */
export interface Trust {
  /** All of it was found to be wrong. */
  readonly distrusted?: Range | undefined;
  /** What this run has not checked yet. */
  readonly again?: (Range & { readonly runId: string }) | undefined;
  /** What comes back unchanged stands, and need not be published anew. */
  readonly audited?: ReadonlySet<bigint> | undefined;
  readonly kept?: ReadonlySet<bigint> | undefined;
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
  /** Coverage of which the answer takes a part: what is left of it. */
  readonly trims: readonly Trim[];
  /** The tail of what is known before the first range: the answer must contain it. */
  readonly overlap?: Overlap | undefined;
  /** Why there is none, where the ledger has a past. */
  readonly noOverlap?: string | undefined;
  /** Segments that lie whole within `closed`, as ranges of their own: kept as they stand if they come back the same. */
  readonly standing: readonly Coverage[];
  readonly isWindow: boolean;
}

export interface Trim {
  readonly row: Coverage;
  readonly keeps: readonly Range[];
}

export interface Overlap {
  readonly to: Micros;
  readonly tail: TailSum;
  readonly sides: Coverage['sides'];
}

/** @returns undefined where nothing is left to ask */
export function planAsk(
  target: Target,
  coverage: readonly Coverage[],
  profile: SourceProfile,
): AskPlan | undefined {
  const known = coverage.filter((row) => isKnown(row, target));
  const others = coverage.filter((row) => !known.includes(row));
  const closedEnd = target.to === undefined ? target.closedTo : min(target.to, target.closedTo);
  const wanted = subtract({ from: target.from, to: closedEnd }, known);
  const taken = take(wanted, others, known, target);
  const { open, supersedes, trims } = taken;
  const standing = supersedes.filter((row) => mayStand(row, target) && isInside(row, taken.closed));
  const closed = standing.reduce(divide, taken.closed);
  const first = closed[0]?.from ?? open?.from;
  if (first === undefined) return undefined;
  const overlap = overlapAt(first, known, target);
  const from = typeof overlap === 'object' ? overlap.tail.from : first;
  const last = open === undefined ? closed.at(-1)?.to : open.to;
  return {
    question: questionOf(from, last, profile, target.now),
    closed,
    open,
    supersedes,
    trims,
    ...(typeof overlap === 'string' ? { noOverlap: overlap } : { overlap }),
    standing,
    isWindow: target.isWindow === true,
  };
}

function isKnown(row: Coverage, { assetId, trust }: Target): boolean {
  if (trust?.kept?.has(row.coverageId) === true) return true;
  const isInScope = row.assetId === undefined || row.assetId === assetId;
  return !row.open && isInScope && !isDistrusted(row, trust);
}

function isDistrusted(row: Coverage, trust: Trust | undefined): boolean {
  if (row.isFaulty) return true;
  if (trust?.distrusted !== undefined && overlaps(row, trust.distrusted)) return true;
  if (trust?.audited?.has(row.coverageId) === true) return true;
  return trust?.again !== undefined && row.runId !== trust.again.runId && overlaps(row, trust.again);
}

/** An open segment, or one that is only audited, is closed as it stands where it comes back the same. */
function mayStand(row: Coverage, { assetId, trust }: Target): boolean {
  if (row.assetId !== assetId || row.content === undefined || row.isFaulty) return false;
  return row.open || trust?.audited?.has(row.coverageId) === true;
}

function isInside(row: Range, ranges: readonly Range[]): boolean {
  return ranges.some(({ from, to }) => row.from >= from && row.to <= to);
}

/** Never an end without a start, and only where the release is known to apply both. */
function questionOf(
  from: Micros,
  last: Micros | undefined,
  profile: SourceProfile,
  now: Micros,
): AskPlan['question'] {
  if (profile.boundsDemanded === true)
    return { from, to: (last ?? ceilSecond(now) + DAY_MICROS) + END_PAD_MICROS };
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

type Taken = Pick<AskPlan, 'closed' | 'open' | 'supersedes' | 'trims'>;

/**
 * What cannot be kept in part is replaced whole, and the range grows until it holds all of it: an object that is
 * not believed, what a person asks for again, and the present, which the answer brings anyway. Of everything else the
 * rest is kept.
 */
function take(
  wanted: readonly Range[],
  others: readonly Coverage[],
  known: readonly Coverage[],
  target: Target,
): Taken {
  const touchedRows: Coverage[] = [];
  for (let closed = union(wanted); ;) {
    const open = openPart(target, known, touchedRows);
    const touched = others.filter((row) => !touchedRows.includes(row) && touches(row, closed, open));
    if (touched.length === 0) return { closed, open, ...divided(touchedRows, closed, open) };
    touchedRows.push(...touched);
    const grown = touched.map((row) => replacedPart(row, target)).filter((part) => part !== undefined);
    closed = union([...closed, ...grown]);
  }
}

function touches(row: Coverage, closed: readonly Range[], open: AskPlan['open']): boolean {
  return (
    closed.some((range) => overlaps(range, row)) ||
    (open !== undefined && row.to > open.from && (open.to === undefined || row.from < open.to))
  );
}

/** Of a segment that is only asked for again in part, the rest stays. */
function replacedPart(row: Coverage, { isWindow, closedTo, trust }: Target): Range | undefined {
  const { from, to } = row;
  if (row.open) return isWindow === true ? undefined : { from, to: min(to, closedTo) };
  if (row.objectKey === undefined || !isDistrusted(row, trust)) return undefined;
  const again = trust?.again;
  const isWhole = again === undefined || isDistrusted(row, { ...trust, again: undefined });
  return isWhole ? { from, to } : { from: max(from, again.from), to: min(to, again.to) };
}

function divided(
  rows: readonly Coverage[],
  closed: readonly Range[],
  open: AskPlan['open'],
): Pick<Taken, 'supersedes' | 'trims'> {
  const taken = [...closed, ...(open === undefined ? [] : [{ from: open.from, to: open.to ?? NO_END }])];
  const trims = rows
    .map((row) => ({ row, keeps: subtract(row, taken) }))
    // Of a present that reaches beyond what is closed now, the answer brings the rest as well.
    .filter(({ row, keeps }) => keeps.length > 0 && !(row.open && open !== undefined));
  const trimmed = new Set(trims.map(({ row }) => row));
  return { supersedes: rows.filter((row) => !trimmed.has(row)), trims };
}

/** What lies behind everything closed. Where an old open segment is replaced, up to the present again. */
function openPart(
  target: Target,
  known: readonly Coverage[],
  touched: readonly Coverage[],
): { from: Micros; to?: Micros } | undefined {
  if (target.isWindow === true) return undefined;
  const to = touched.some((row) => row.open) ? undefined : target.to;
  const from = [...known, ...touched]
    .filter((row) => !row.open)
    .reduce((latest, row) => max(latest, row.to), max(target.from, target.closedTo));
  if (to === undefined) return { from };
  return from < to ? { from, to } : undefined;
}

/** @returns in words why nothing known can be asked for again, where something is known */
function overlapAt(first: Micros, known: readonly Coverage[], target: Target): Overlap | string | undefined {
  const row = known.find((candidate) => candidate.to === first && candidate.assetId === target.assetId);
  if (row?.tail === undefined) return undefined;
  const isOtherEpoch = row.epoch !== undefined && target.epoch !== undefined && row.epoch !== target.epoch;
  if (isOtherEpoch) return 'the chain of the source began again since';
  if (target.now - row.tail.from > (target.retentionMicros ?? RETENTION_MICROS)) {
    return row.tail.rows === 0 ? undefined : 'what is known is older than a source may keep';
  }
  return { to: first, tail: row.tail, sides: row.sides };
}

function min(left: Micros, right: Micros): Micros {
  return left < right ? left : right;
}

function max(left: Micros, right: Micros): Micros {
  return left > right ? left : right;
}
