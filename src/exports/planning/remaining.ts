/**
 * What is left to ask of a ledger: target minus coverage, and the request that brings it. Known segments that a
 * range touches are never grown into it: what lies outside is kept, and only its border moves. Pure.
 */
import {
  BEGINNING,
  ceilSecond,
  DAY_MICROS,
  type Micros,
  SECOND_MICROS,
} from '../../time/time.ts';
import type { Coverage } from '../../catalog/coverage-rows.ts';
import type { TailSum } from '../../ledger/tail-sum.ts';
import type { SourceProfile } from '../store/source-profile.ts';
import {
  byFrom,
  earlier,
  later,
  overlaps,
  type Range,
  subtract,
  union,
} from '../../ledger/ranges.ts';

type Rows = readonly Coverage[];

/** Half of the six months that nodes of the public service keep by default. */
export const RETENTION_MICROS = 90n * DAY_MICROS;
/**
 * From release 0.73 on the bounds apply to an entry's own time, up to some microseconds behind the block time that
 * is exported: an end is asked for this much later, and cut locally.
 */
const END_PAD_MICROS = 2n * SECOND_MICROS;
/** Behind every instant there is. */
const NO_END: Micros = 10n ** 18n;

/** What is wanted of a ledger, and what is known of it. */
export interface Target {
  readonly coverage: readonly Coverage[];
  readonly profile: SourceProfile;
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
  readonly runId?: string | undefined;
  /** The source answers for short ranges alone: a start cannot be left out. */
  readonly isSilent?: boolean | undefined;
  /** Asked for again, though it is known: what this run has not checked yet. */
  readonly again?: Range | undefined;
  /** Asked for again: what comes back unchanged stands, and need not be published anew. */
  readonly audited?: ReadonlySet<bigint> | undefined;
  /** Kept, though the source contradicts it. */
  readonly kept?: ReadonlySet<bigint> | undefined;
}

/** A request, and what becomes of what is known by its answer. */
export interface RequestPlan {
  /** What is asked; without `from`: all times. */
  readonly question: Partial<Range>;
  /** What becomes closed by the answer: disjoint, in order. */
  readonly closed: readonly Range[];
  /** The present, that stays open; without `to`: up to its newest entry. */
  readonly open: { readonly from: Micros; readonly to?: Micros | undefined } | undefined;
  /** Coverage whose place the answer takes. */
  readonly supersedes: Rows;
  /** Coverage of which the answer takes a part: what is left of it. */
  readonly trims: readonly { readonly row: Coverage; readonly keeps: readonly Range[] }[];
  /** The tail of what is known before the first range: the answer must contain it. */
  readonly overlap: Overlap | undefined;
  /** Segments that lie whole within `closed`, as ranges of their own: kept as they stand if they come back the same. */
  readonly revalidated: Rows;
  readonly isWindow: boolean;
}

export interface Overlap {
  readonly to: Micros;
  readonly tail: TailSum;
  readonly sides: Coverage['sides'];
  /** It holds no row that would show that a start was understood: none is sent. */
  readonly isStartless: boolean;
  /** Why the source may have no row of it any more. */
  readonly mayBeGone: string | undefined;
}

/** @returns undefined where nothing is left to ask */
export function planRequest(target: Target): RequestPlan | undefined {
  const plan = planPass(target);
  const between = plan === undefined ? [] : emptyRangesBetween(plan, target);
  if (between.length === 0) return plan;
  // The answer brings their rows, should there be any: they are audited without a request more.
  const audited = new Set([...(target.audited ?? []), ...between]);
  return planPass({ ...target, audited });
}

/** Known ranges without entries between those that are asked for. */
function emptyRangesBetween(
  plan: RequestPlan,
  { coverage, assetId, runId }: Target,
): bigint[] {
  const first = plan.closed[0]?.from ?? plan.open?.from ?? NO_END;
  const last =
    plan.open === undefined ? (plan.closed.at(-1)?.to ?? first) : plan.open.from;
  return coverage
    .filter(
      (row) =>
        isEmpty(row) && row.assetId === assetId && row.from >= first && row.to <= last,
    )
    .filter(
      (row) =>
        !plan.supersedes.includes(row) && (runId === undefined || row.runId !== runId),
    )
    .map(({ coverageId }) => coverageId);
}

function planPass(target: Target): RequestPlan | undefined {
  const { coverage } = target;
  const known = coverage.filter((row) => isBelieved(row, target));
  const others = coverage.filter((row) => !known.includes(row));
  const closedEnd = earlier(target.to ?? NO_END, target.closedTo);
  const taken = expandToUnsplittable(
    subtract({ from: target.from, to: closedEnd }, known),
    others,
    known,
    target,
  );
  const standing = taken.supersedes.filter((row) =>
    mayStayUnchanged(row, taken.closed, target),
  );
  const rest = taken.closed.flatMap((range) => subtract(range, standing));
  const parts = [...rest, ...standing.map(({ from, to }) => ({ from, to }))];
  const closed = parts.toSorted(byFrom);
  const first = closed[0]?.from ?? taken.open?.from;
  if (first === undefined) return undefined;
  const overlap = overlapAt(first, known, target);
  const last = taken.open === undefined ? closed.at(-1)?.to : taken.open.to;
  return {
    ...taken,
    question: questionOf(overlap?.tail.from ?? first, last, target),
    closed,
    overlap,
    revalidated: standing,
    isWindow: target.isWindow === true,
  };
}

function isBelieved(row: Coverage, target: Target): boolean {
  if (target.kept?.has(row.coverageId) === true) return true;
  const isInScope = row.assetId === undefined || row.assetId === target.assetId;
  return !row.open && isInScope && !isDistrusted(row, target);
}

function isDistrusted(row: Coverage, { audited, again, runId }: Target): boolean {
  if (row.isFaulty || audited?.has(row.coverageId) === true) return true;
  return again !== undefined && row.runId !== runId && overlaps(row, again);
}

/** An open segment, or one that is only audited, is closed as it stands where it comes back the same. */
function mayStayUnchanged(
  row: Coverage,
  closed: readonly Range[],
  { assetId, audited }: Target,
): boolean {
  if (!closed.some(({ from, to }) => row.from >= from && row.to <= to)) return false;
  if (
    row.assetId !== assetId ||
    row.isFaulty ||
    (row.content === undefined && !isEmpty(row))
  )
    return false;
  return row.open || audited?.has(row.coverageId) === true;
}

/** Never an end without a start, and only where the release is known to apply both. */
function questionOf(
  from: Micros,
  last: Micros | undefined,
  target: Target,
): Partial<Range> {
  const { profile, now } = target;
  if (profile.boundsDemanded === true)
    return { from, to: (last ?? ceilSecond(now) + DAY_MICROS) + END_PAD_MICROS };
  if (last !== undefined && profile.bounds === 'right')
    return { from, to: last + (profile.sides === 'from' ? 0n : END_PAD_MICROS) };
  return from === BEGINNING ? {} : { from };
}

/**
 * What cannot be kept in part is replaced whole, and the range grows until it holds all of it: an object that is
 * not believed, what a person asks for again, and the present, which the answer brings anyway. Of everything else the
 * rest is kept.
 */
function expandToUnsplittable(
  wanted: readonly Range[],
  others: Rows,
  known: Rows,
  target: Target,
) {
  const rows: Coverage[] = [];
  for (let closed = union(wanted); ;) {
    const open = openPart(target, known, rows);
    const taken =
      open === undefined
        ? closed
        : [...closed, { from: open.from, to: open.to ?? NO_END }];
    const touched = others.filter(
      (row) => !rows.includes(row) && taken.some((range) => overlaps(range, row)),
    );
    if (touched.length === 0) {
      const trims = rows
        .map((row) => ({ row, keeps: subtract(row, taken) }))
        // Of a present that reaches beyond what is closed now, the answer brings the rest as well.
        .filter(
          ({ row, keeps }) => keeps.length > 0 && !(row.open && open !== undefined),
        );
      return {
        closed,
        open,
        trims,
        supersedes: rows.filter((row) => !trims.some((trim) => trim.row === row)),
      };
    }
    rows.push(...touched);
    closed = union([
      ...closed,
      ...touched.flatMap((row) => replacedPart(row, target) ?? []),
    ]);
  }
}

/** Of a segment that is only asked for again in part, the rest stays. */
function replacedPart(row: Coverage, target: Target): Range | undefined {
  const { from, to } = row;
  const { isWindow, closedTo, again } = target;
  if (row.open)
    return isWindow === true ? undefined : { from, to: earlier(to, closedTo) };
  if (row.objectKey === undefined || !isDistrusted(row, target)) return undefined;
  return again === undefined || isDistrusted(row, { ...target, again: undefined })
    ? { from, to }
    : { from: later(from, again.from), to: earlier(to, again.to) };
}

/** What lies behind everything closed. Where an old open segment is replaced, up to the present again. */
function openPart(target: Target, known: Rows, touched: Rows) {
  if (target.isWindow === true) return undefined;
  const to = touched.some((row) => row.open) ? undefined : target.to;
  const ends = [...known, ...touched].filter((row) => !row.open).map((row) => row.to);
  const from = ends.reduce(later, later(target.from, target.closedTo));
  if (to === undefined) return { from };
  return from < to ? { from, to } : undefined;
}

/** From the first closed range to the end of the last. */
export function closedRange({ closed }: RequestPlan): Range | undefined {
  const first = closed[0];
  const last = closed.at(-1);
  return first && last && { from: first.from, to: last.to };
}

/** A closed range in which there is no entry. */
export function isEmpty({ open, rows, objectKey }: Coverage): boolean {
  return !open && rows === 0n && objectKey === undefined;
}

function overlapAt(first: Micros, known: Rows, target: Target): Overlap | undefined {
  const row = known.find(
    (candidate) => candidate.to === first && candidate.assetId === target.assetId,
  );
  if (row?.tail === undefined) return undefined;
  const { tail, sides } = row;
  const isStartless = tail.rows === 0 && target.isSilent !== true;
  return {
    to: first,
    tail: isStartless ? { ...tail, from: emptySince(row, known) } : tail,
    // Of both sides none was there: one of them must not be either.
    sides: isStartless && sides === 'both' ? 'unknown' : sides,
    isStartless,
    mayBeGone: tail.rows === 0 ? undefined : whyGone(row, tail, target),
  };
}

/** Where the known ranges without entries begin that end with this one. */
function emptySince(last: Coverage, known: Rows): Micros {
  let { from } = last;
  for (const row of known
    .filter(isEmpty)
    .toSorted((one, other) => Number(other.to - one.to)))
    if (row.to === from && row.assetId === last.assetId && row.sides === last.sides)
      ({ from } = row);
  return from;
}

function whyGone({ epoch }: Coverage, tail: TailSum, target: Target): string | undefined {
  const isOtherEpoch =
    epoch !== undefined && target.epoch !== undefined && epoch !== target.epoch;
  if (isOtherEpoch) return 'the chain of the source began again since';
  const isOld = target.now - tail.from > (target.retentionMicros ?? RETENTION_MICROS);
  return isOld ? 'what is known is older than a source may keep' : undefined;
}
