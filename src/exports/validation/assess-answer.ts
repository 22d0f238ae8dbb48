/**
 * Describes a response as plain facts: how it compares with known rows, whether it is
 * proven complete to its end, and what it would replace. `export-state.ts` decides what
 * to do about them. Pure.
 */
import type { Coverage } from '../../catalog/coverage-rows.ts';
import type { Publication } from '../../catalog/publications.ts';
import { overlaps, type Range, subtract } from '../../ledger/ranges.ts';
import { BEGINNING, DAY_MICROS, type Micros } from '../../time/time.ts';
import type { Received } from '../download/receive-answer.ts';
import type { PlannedRequest } from '../planning/next-window.ts';
import {
  type RequestPlan,
  closedRange,
  isEmpty,
} from '../planning/remaining.ts';
import type { ShownRows, WindowPlan } from '../planning/window-plan.ts';
import type { SourceProfile } from '../planning/profile.ts';
import {
  compareOverlap,
  compareShownToo,
  fewerInOpen,
  type OverlapFinding,
  rangeShownToo,
  rowsOf,
  shrinking,
  sumsOf,
} from './compare-rows.ts';

/**
 * Rows older than this may be missing simply because the source keeps entries for only
 * a short time.
 */
const RESTED_MICROS = 7n * DAY_MICROS;

/** A response that was received to its end, with its request. */
export interface Answered extends PlannedRequest {
  readonly received: Received;
  /** The profile of the release, including the findings from this response. */
  readonly learned: SourceProfile;
}

/** A reason not to believe a response. */
export type Doubt =
  /** Known rows were not returned unchanged. */
  | Extract<OverlapFinding, { expected: unknown }>
  /** An earlier stream that broke off had more rows of this range. */
  | { readonly state: 'less than seen' }
  /**
   * An earlier response, in this run or an earlier one, had more rows of this range. The
   * node that sent this response may keep fewer entries.
   */
  | {
      readonly state: 'less than shown';
      readonly shownRows: string;
      readonly receivedRows: string;
    }
  /** The open segment of the last run has fewer rows now than before. */
  | {
      readonly state: 'fewer in the open segment';
      readonly knownRows: string;
      readonly receivedRows: string;
    }
  /**
   * A request with a start and an end returned no outgoing entry of the party, as would
   * be expected of a release that applies the two bounds wrongly.
   */
  | { readonly state: 'nothing left' }
  /**
   * The source sent no rows after the start, and no known row was expected. The source
   * may have interpreted the start as a different time.
   */
  | { readonly state: 'start unproven' }
  /**
   * Neither the transport nor a final line break shows that the response reached its
   * end, and no second response was identical.
   */
  | { readonly state: 'end unproven' };

/** The facts that a response shows. */
export interface AnswerFacts {
  /**
   * Whether the response came from a different release than the one that the request was
   * made for. It may then lack rows that a request made for that release would return.
   */
  readonly isOutdated: boolean;
  /** The result of the overlap check; undefined if the plan has none. */
  readonly overlap: string | undefined;
  /** The first doubt that this response raises on its own. */
  readonly doubt: Doubt | undefined;
  /**
   * Whether the response has no outgoing entry, and the request was one for which a
   * faulty release returns none.
   */
  readonly isNothingLeft: boolean;
  /**
   * Whether the transport and the final line break show that the response reached its
   * end.
   */
  readonly isFramed: boolean;
  /** Sums that must be the same in any other response to the same plan. */
  readonly sums: string;
  /** Closed segments that the response would replace with fewer rows. */
  readonly shrunk: readonly Coverage[];
  /** Open segments that the response would replace with fewer rows. */
  readonly openShrunk: readonly Coverage[];
  /**
   * Whether any row is a movement from one of the party's accounts to another party's
   * account.
   */
  readonly hasLeaving: boolean;
  /** Whether there are rows in a closed range. */
  readonly hasClosedRows: boolean;
  /** Whether there are rows in any range of the plan. */
  readonly hasNewRows: boolean;
  /** Whether the response contains known rows from before the first range. */
  readonly hasKnownRows: boolean;
  /** Whether the last line has no line break. */
  readonly hasOpenLine: boolean;
  /** Whether a closed segment would be replaced, in whole or in part. */
  readonly replacesClosed: boolean;
  /** Whether the expected rows are so old that some sources no longer keep them. */
  readonly isRested: boolean;
  /** Ids of the coverage rows that the overlap check compared the response with. */
  readonly compared: readonly bigint[];
  /** The rows of a known range, if the response has more of them than are known. */
  readonly shownMore: ShownRows | undefined;
  /** Whether the plan is one window of a larger range, so more is left to request. */
  readonly isWindow: boolean;
  /**
   * Whether this is the first response that shows how far the source has advanced, so
   * that the next request can close more.
   */
  readonly isFirstShown: boolean;
  /** Whether the source's rows have times. */
  readonly hasTimes: boolean;
  /**
   * Whether the response has no rows, and the source's list did not show the party under
   * the id that was requested. Some sources respond to an unknown id as if its ledger
   * were empty.
   */
  readonly mayBeUnknown: boolean;
}

/** The context that the facts of a response depend on. */
export interface AssessContext {
  readonly windows: WindowPlan;
  readonly hasTimes: boolean;
  /** Whether the source's list did not show the party; see `ExportScope`. */
  readonly isUnlisted: boolean;
  /** The source's time. */
  readonly now: Micros;
}

/** Returns the facts that a response shows. */
export function assessAnswer(
  answered: Answered,
  context: AssessContext,
): AnswerFacts {
  const { plan, request, received, target, learned } = answered;
  const { profile } = target;
  const { hasTimes, isUnlisted, now } = context;
  const overlap = plan.overlap && compareOverlap(plan.overlap, received);
  const isBack = overlap === undefined || overlap.state === 'verified';
  const finding =
    (isBack ? compareShownToo(answered, received) : undefined) ?? overlap;
  const gone = finding?.state === 'fewer' ? plan.overlap?.mayBeGone : undefined;

  const isOtherRelease =
    profile.header !== undefined && profile.header !== learned.header;
  const isOtherBounds =
    learned.bounds !== 'right' && profile.bounds !== learned.bounds;

  const hasFewerOpen = fewerInOpen(plan, received) !== undefined;
  const overlapFrom = plan.overlap?.tail.from ?? now;

  return {
    isOutdated: request.to !== undefined && (isOtherRelease || isOtherBounds),
    overlap: gone ?? finding?.state,
    doubt: doubtOf(answered, {
      ...context,
      finding,
      isGone: gone !== undefined,
    }),
    isNothingLeft: isNothingLeft(answered, finding),
    isFramed: received.isFramed && received.openLine === undefined,
    sums: sumsOf(received),
    shrunk: shrinking(plan, received),
    openShrunk: hasFewerOpen ? plan.supersedes.filter((row) => row.open) : [],
    hasLeaving: received.leaving > 0,
    hasClosedRows: received.segments.some(
      ({ open, spooled }) => !open && spooled !== undefined,
    ),
    hasNewRows: received.segments.some(({ spooled }) => spooled !== undefined),
    hasKnownRows: received.before.rows > 0,
    hasOpenLine: received.openLine !== undefined,
    replacesClosed:
      plan.trims.length > 0 || plan.supersedes.some((row) => !row.open),
    isRested: now - overlapFrom > RESTED_MICROS,
    compared: comparedCoverage(answered),
    shownMore: rowsShownMore(answered, finding),
    isWindow: plan.isWindow,
    isFirstShown:
      hasTimes &&
      profile.shownTo === undefined &&
      learned.shownTo !== undefined,
    hasTimes,
    mayBeUnknown: isUnlisted && received.rows === 0,
  };
}

interface DoubtContext extends AssessContext {
  readonly finding: OverlapFinding | undefined;
  /** Whether the known rows may be so old that the source no longer keeps them. */
  readonly isGone: boolean;
}

function doubtOf(
  { plan, request, received }: Answered,
  { windows, finding, isGone }: DoubtContext,
): Doubt | undefined {
  if (finding !== undefined && 'expected' in finding && !isGone) return finding;

  const range = closedRange(plan);
  if (range !== undefined && windows.isLess(received.seen.stretches, range))
    return { state: 'less than seen' };

  const fewer = fewerInOpen(plan, received);
  if (fewer !== undefined)
    return { state: 'fewer in the open segment', ...fewer };

  const less = lessThanShown({ plan, request, received }, windows.shown);
  if (less !== undefined) return { state: 'less than shown', ...less };

  const hasNoOverlap = plan.overlap === undefined || isGone;
  const provesNoStart = !plan.isWindow && !windows.isSilent && hasNoOverlap;
  const hasStart = (request.from ?? BEGINNING) > BEGINNING;
  if (provesNoStart && received.rows === 0 && hasStart)
    return { state: 'start unproven' };
  return undefined;
}

function isNothingLeft(
  { request, received, learned }: Answered,
  finding: OverlapFinding | undefined,
): boolean {
  // Known rows in the response show that the release applied the bounds.
  const isKnownBack = finding?.state === 'verified' && received.before.rows > 0;
  return (
    request.to !== undefined &&
    learned.boundsDemanded !== true &&
    received.layout.sides === 'both' &&
    received.leaving === 0 &&
    !isKnownBack
  );
}

/**
 * Returns the shown and the received number of rows of a range that an earlier response
 * showed; undefined if the response does not contain the range, or has as many rows.
 */
function lessThanShown(
  answered: Pick<Answered, 'plan' | 'request' | 'received'>,
  shown: ShownRows | undefined,
): { readonly shownRows: string; readonly receivedRows: string } | undefined {
  if (shown === undefined) return undefined;
  const received = countRows(shown.range, answered);
  if (received === undefined || received >= BigInt(shown.rows))
    return undefined;
  return { shownRows: String(shown.rows), receivedRows: String(received) };
}

/**
 * Returns an upper bound for the rows that a response has in a range: the rows of every
 * requested range that overlaps it or, if it lies before the requested ranges, all rows
 * before them.
 * @returns undefined if the response does not contain the whole range
 */
function countRows(
  range: Range,
  { plan, request, received }: Pick<Answered, 'plan' | 'request' | 'received'>,
): bigint | undefined {
  if (isWithin(range, plan)) {
    const inside = received.segments.filter(({ from, to = range.to }) =>
      overlaps({ from, to }, range),
    );
    return rowsOf(inside);
  }
  const first = plan.closed[0]?.from ?? plan.open?.from ?? BEGINNING;
  const isBefore =
    range.to <= first && (request.from ?? BEGINNING) <= range.from;
  if (!isBefore) return undefined;
  return BigInt(received.before.rows) + received.leftOut.range;
}

/** Whether the closed ranges of a plan contain a whole range. */
export function isWithin(range: Range, { closed }: RequestPlan): boolean {
  return subtract(range, closed).length === 0;
}

/** Returns the known range that was compared, if the response has more rows of it. */
function rowsShownMore(
  answered: Answered,
  finding: OverlapFinding | undefined,
): ShownRows | undefined {
  const range = comparedRange(answered);
  if (range === undefined || finding?.state !== 'other') return undefined;
  const rows = Number(finding.received.rows);
  return rows > Number(finding.expected.rows) ? { range, rows } : undefined;
}

/**
 * Returns the range of known rows that the response was compared with: the end of the
 * known rows, or everything before the requested ranges if the response contains those
 * too.
 */
function comparedRange(answered: Answered): Range | undefined {
  const { overlap } = answered.plan;
  const known = overlap && { from: overlap.tail.from, to: overlap.to };
  return rangeShownToo(answered) ?? known;
}

/**
 * If known rows have twice come back different, returns the ids of the coverage to
 * request again. This is the coverage of the scope's own asset within the range of the
 * overlap check. If the response also contains all earlier rows, it is that asset's
 * coverage of everything before the requested ranges.
 */
function comparedCoverage(answered: Answered): readonly bigint[] {
  const { target } = answered;
  const range = comparedRange(answered);
  if (range === undefined) return [];
  return target.coverage
    .filter((row) => row.assetId === target.assetId && overlaps(row, range))
    .map(({ coverageId }) => coverageId);
}

/** How a published response compares with the coverage that was known before. */
export interface PublishedFacts {
  /**
   * Closed coverage that was requested again, and whether the source returned the same
   * rows.
   */
  readonly audited: readonly AuditFinding[];
  /**
   * Whether the response has rows of other parties or assets, which no release should
   * send.
   */
  readonly hasForeignRows: boolean;
}

export interface AuditFinding {
  readonly row: Coverage;
  readonly isSame: boolean;
}

/**
 * Compares a published response with the coverage that was known before.
 * @param hasAsset whether the request was for one asset
 */
export function assessPublished(
  { plan, received }: Answered,
  { segments, closes }: Publication,
  hasAsset: boolean,
): PublishedFacts {
  const { leftOut, layout } = received;
  const isSame = (row: Coverage): boolean =>
    isEmpty(row)
      ? !segments.some(({ manifest }) => overlaps(manifest, row))
      : closes.some(({ coverageId }) => coverageId === row.coverageId);

  const hasForeignAsset =
    hasAsset && layout.sides === 'from' && leftOut.asset > 0n;
  return {
    audited: auditedRows(plan).map((row) => ({ row, isSame: isSame(row) })),
    hasForeignRows: leftOut.party > 0n || hasForeignAsset,
  };
}

function auditedRows(plan: RequestPlan): readonly Coverage[] {
  return plan.revalidated.filter(({ open }) => !open);
}
