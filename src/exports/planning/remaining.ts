/**
 * Computes which part of a ledger is left to request (the target minus the coverage),
 * and the next request for it. A range does not grow to include a known segment that it
 * touches. Instead, the segment is trimmed, and its part outside the range is kept.
 * Pure.
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
import type { SourceProfile } from './profile.ts';
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

/**
 * How long a source is certain to keep entries: half of the six months that nodes keep
 * them by default.
 */
export const RETENTION_MICROS = 90n * DAY_MICROS;
/**
 * How far the end of a request is padded; the surplus rows are dropped by the mirror.
 * From release 0.73 on, bounds apply to an entry's own time, which is up to a few
 * microseconds after the exported block time.
 */
const END_PAD_MICROS = 2n * SECOND_MICROS;
/** An instant later than any entry. */
const NO_END: Micros = 10n ** 18n;

/**
 * The wanted part of a ledger, and the known facts about the ledger. Times are
 * microseconds since 1970.
 */
export interface Target {
  readonly coverage: readonly Coverage[];
  readonly profile: SourceProfile;
  readonly assetId?: string | undefined;
  readonly from: Micros;
  /** The end, exclusive. If absent, the range extends to the present. */
  readonly to?: Micros | undefined;
  /** No range is closed beyond this instant, a whole second. */
  readonly closedTo: Micros;
  /**
   * Whether the target is one window of a larger range. Only the last window covers the
   * present.
   */
  readonly isWindow?: boolean;
  /** The source's own time. */
  readonly now: Micros;
  /**
   * How long the source is certain to keep entries; 90 days by default. If older rows
   * are missing, that proves nothing.
   */
  readonly retentionMicros?: Micros | undefined;
  /** The epoch of the source's chain; undefined if no checkpoint is known. */
  readonly epoch?: number | undefined;
  readonly runId?: string | undefined;
  /**
   * Whether the source responds only to requests for short ranges, so that a start is
   * always needed.
   */
  readonly isSilent?: boolean | undefined;
  /**
   * Coverage in this range is requested again unless this run has already requested it.
   */
  readonly again?: Range | undefined;
  /**
   * Ids of the coverage rows to request again. A row stays unchanged if the source
   * returns the same entries.
   */
  readonly audited?: ReadonlySet<bigint> | undefined;
  /** Ids of the coverage rows that are kept although the source contradicts them. */
  readonly kept?: ReadonlySet<bigint> | undefined;
}

/** A request, and how its response changes the coverage. */
export interface RequestPlan {
  /** The range to request; without `from`, it has no lower bound. */
  readonly question: Partial<Range>;
  /** The ranges that the response closes, disjoint and in order. */
  readonly closed: readonly Range[];
  /**
   * The open range at the end, which is still growing. Without `to`, it ends at its
   * newest entry.
   */
  readonly open:
    | { readonly from: Micros; readonly to?: Micros | undefined }
    | undefined;
  /** Coverage that the response replaces. */
  readonly supersedes: Rows;
  /** Coverage that the response replaces in part, with the ranges to keep. */
  readonly trims: readonly {
    readonly row: Coverage;
    readonly keeps: readonly Range[];
  }[];
  /** The last known rows before the first range. The response must contain them. */
  readonly overlap: Overlap | undefined;
  /**
   * The rows of coverage inside `closed`, where each of them is a separate range. A row
   * is left unchanged if the response has the same entries.
   */
  readonly revalidated: Rows;
  readonly isWindow: boolean;
}

/** Known rows that a response must contain. */
export interface Overlap {
  /** The instant at which the known rows end and the first requested range begins. */
  readonly to: Micros;
  readonly tail: TailSum;
  readonly sides: Coverage['sides'];
  /**
   * Whether the start is left out, because there are no known rows that would show that
   * the source understood it.
   */
  readonly isStartless: boolean;
  /**
   * Why the source may no longer have these rows; undefined if it should still have
   * them.
   */
  readonly mayBeGone: string | undefined;
}

/** Returns the plan of the next request; undefined if nothing is left to request. */
export function planRequest(target: Target): RequestPlan | undefined {
  const plan = planPass(target);
  const between = plan === undefined ? [] : emptyRangesBetween(plan, target);
  if (between.length === 0) return plan;
  // The response covers the empty ranges in between too, so audit them without a
  // further request.
  const audited = new Set([...(target.audited ?? []), ...between]);
  return planPass({ ...target, audited });
}

/** Returns the ids of the known empty ranges between the requested ranges. */
function emptyRangesBetween(
  plan: RequestPlan,
  { coverage, assetId, runId }: Target,
): bigint[] {
  const first = plan.closed[0]?.from ?? plan.open?.from ?? NO_END;
  const last =
    plan.open === undefined
      ? (plan.closed.at(-1)?.to ?? first)
      : plan.open.from;
  return coverage
    .filter(
      (row) =>
        isEmpty(row) &&
        row.assetId === assetId &&
        row.from >= first &&
        row.to <= last,
    )
    .filter(
      (row) =>
        !plan.supersedes.includes(row) &&
        (runId === undefined || row.runId !== runId),
    )
    .map(({ coverageId }) => coverageId);
}

function planPass(target: Target): RequestPlan | undefined {
  const { coverage } = target;
  const known = coverage.filter((row) => isBelieved(row, target));
  const others = coverage.filter((row) => !known.includes(row));
  const closedEnd = earlier(target.to ?? NO_END, target.closedTo);
  const expanded = expandToUnsplittable(
    subtract({ from: target.from, to: closedEnd }, known),
    others,
    known,
    target,
  );
  const standing = expanded.supersedes.filter((row) =>
    mayStayUnchanged(row, expanded.closed, target),
  );
  const rest = expanded.closed.flatMap((range) => subtract(range, standing));
  const parts = [...rest, ...standing.map(({ from, to }) => ({ from, to }))];
  const closed = parts.toSorted(byFrom);
  const first = closed[0]?.from ?? expanded.open?.from;
  if (first === undefined) return undefined;
  const overlap = overlapAt(first, known, target);
  const last =
    expanded.open === undefined ? closed.at(-1)?.to : expanded.open.to;
  return {
    ...expanded,
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

function isDistrusted(
  row: Coverage,
  { audited, again, runId }: Target,
): boolean {
  if (row.isFaulty || audited?.has(row.coverageId) === true) return true;
  return again !== undefined && row.runId !== runId && overlaps(row, again);
}

/**
 * Whether an open or audited segment can be left unchanged if the response has the same
 * rows.
 */
function mayStayUnchanged(
  row: Coverage,
  closed: readonly Range[],
  { assetId, audited }: Target,
): boolean {
  if (!closed.some(({ from, to }) => row.from >= from && row.to <= to))
    return false;
  if (
    row.assetId !== assetId ||
    row.isFaulty ||
    (row.content === undefined && !isEmpty(row))
  )
    return false;
  return row.open || audited?.has(row.coverageId) === true;
}

/**
 * Returns the range to request. An end is never sent without a start, and only to a
 * release that is known to apply both.
 */
function questionOf(
  from: Micros,
  last: Micros | undefined,
  target: Target,
): Partial<Range> {
  const { profile, now } = target;
  if (profile.boundsDemanded === true)
    return {
      from,
      to: (last ?? ceilSecond(now) + DAY_MICROS) + END_PAD_MICROS,
    };
  if (last !== undefined && profile.bounds === 'right')
    return {
      from,
      to: last + (profile.sides === 'from' ? 0n : END_PAD_MICROS),
    };
  return from === BEGINNING ? {} : { from };
}

/** The ranges of a plan, and how the coverage in them changes. */
interface Expanded {
  readonly closed: readonly Range[];
  readonly open: RequestPlan['open'];
  readonly trims: RequestPlan['trims'];
  readonly supersedes: Rows;
}

/**
 * Expands the wanted ranges until they include every row of coverage that they touch
 * and that cannot be split: an object that is not trusted, a range that an operator
 * requests again, and the open segment, whose rows the response contains anyway. All
 * other coverage that they touch is trimmed.
 *
 *     coverage    ├── trusted ──┤├─ faulty ─┤       ├── open ──►
 *     wanted                 ├────────┤
 *     touched     ├─────────────┤├──────────┤
 *     closed                 ├──────────────┤
 *     keeps       ├──────────┤
 *
 * Each expansion can touch further rows, so this repeats until no new row is touched.
 */
function expandToUnsplittable(
  wanted: readonly Range[],
  others: Rows,
  known: Rows,
  target: Target,
): Expanded {
  const touched: Coverage[] = [];
  let closed = union(wanted);
  let open = openPart(target, known, touched);
  let more = touchedBy(replacedRanges(closed, open), others);
  while (more.length > 0) {
    touched.push(...more);
    const whole = more.flatMap((row) => replacedPart(row, target) ?? []);
    closed = union([...closed, ...whole]);
    open = openPart(target, known, touched);
    const rest = others.filter((row) => !touched.includes(row));
    more = touchedBy(replacedRanges(closed, open), rest);
  }

  const replaced = replacedRanges(closed, open);
  const trims = touched
    .map((row) => ({ row, keeps: subtract(row, replaced) }))
    // An open segment is not trimmed if the response has an open part, because that part
    // contains everything beyond the closed range.
    .filter(
      ({ row, keeps }) => keeps.length > 0 && !(row.open && open !== undefined),
    );
  const trimmed = new Set(trims.map(({ row }) => row));
  const supersedes = touched.filter((row) => !trimmed.has(row));
  return { closed, open, trims, supersedes };
}

/** Returns the closed ranges and the open one: everything that the response replaces. */
function replacedRanges(
  closed: readonly Range[],
  open: RequestPlan['open'],
): readonly Range[] {
  return open === undefined
    ? closed
    : [...closed, { from: open.from, to: open.to ?? NO_END }];
}

function touchedBy(ranges: readonly Range[], rows: Rows): Rows {
  return rows.filter((row) => ranges.some((range) => overlaps(range, row)));
}

/**
 * Returns the part of a row that the plan must include as a whole; undefined if the row
 * can be trimmed anywhere. If only part of a segment is requested again, the rest is
 * kept.
 */
function replacedPart(row: Coverage, target: Target): Range | undefined {
  const { from, to } = row;
  const { isWindow, closedTo, again } = target;
  if (row.open)
    return isWindow === true ? undefined : { from, to: earlier(to, closedTo) };
  if (row.objectKey === undefined || !isDistrusted(row, target))
    return undefined;
  return again === undefined ||
    isDistrusted(row, { ...target, again: undefined })
    ? { from, to }
    : { from: later(from, again.from), to: earlier(to, again.to) };
}

/**
 * Returns the open range after all known and closed ranges; undefined if there is none.
 * If an old open segment is replaced, the open range extends to the present again.
 */
function openPart(
  target: Target,
  known: Rows,
  touched: Rows,
): RequestPlan['open'] {
  if (target.isWindow === true) return undefined;
  const to = touched.some((row) => row.open) ? undefined : target.to;
  // A kept open segment may extend beyond `closedTo`, if this run published it itself.
  const ends = [...known, ...touched.filter((row) => !row.open)].map(
    (row) => row.to,
  );
  const from = ends.reduce(later, later(target.from, target.closedTo));
  if (to === undefined) return { from };
  return from < to ? { from, to } : undefined;
}

/**
 * Returns the range from the start of the first closed range to the end of the last;
 * undefined if there are none.
 */
export function closedRange({ closed }: RequestPlan): Range | undefined {
  const first = closed[0];
  const last = closed.at(-1);
  return first && last && { from: first.from, to: last.to };
}

/** Whether coverage is an empty closed range. */
export function isEmpty({ open, rows, objectKey }: Coverage): boolean {
  return !open && rows === 0n && objectKey === undefined;
}

function overlapAt(
  first: Micros,
  known: Rows,
  target: Target,
): Overlap | undefined {
  const row = known.find(
    (candidate) =>
      candidate.to === first && candidate.assetId === target.assetId,
  );
  if (row?.tail === undefined) return undefined;
  const { tail, sides } = row;
  const isStartless = tail.rows === 0 && target.isSilent !== true;
  return {
    to: first,
    tail: isStartless ? { ...tail, from: emptySince(row, known) } : tail,
    // The range has no rows, counting both sides of a movement, so it has none on one
    // side alone either. It can be compared whatever sides the response has.
    sides: isStartless && sides === 'both' ? 'unknown' : sides,
    isStartless,
    mayBeGone: tail.rows === 0 ? undefined : whyGone(row, tail, target),
  };
}

/** Returns the start of the unbroken run of known empty ranges that ends with `last`. */
function emptySince(last: Coverage, known: Rows): Micros {
  const newestFirst = known
    .filter(isEmpty)
    .filter((row) => row.assetId === last.assetId && row.sides === last.sides)
    .toSorted((one, other) => Number(other.to - one.to));
  let from = last.from;
  for (const row of newestFirst) {
    if (row.to === from) from = row.from;
  }
  return from;
}

/** Returns why the source may no longer have the tail of known rows. */
function whyGone(
  { epoch }: Coverage,
  tail: TailSum,
  target: Target,
): string | undefined {
  const isOtherEpoch =
    epoch !== undefined && target.epoch !== undefined && epoch !== target.epoch;
  if (isOtherEpoch) return 'the chain of the source has restarted since';
  const isOld =
    target.now - tail.from > (target.retentionMicros ?? RETENTION_MICROS);
  return isOld ? 'what is known is older than a source may keep' : undefined;
}
