/**
 * Decides on the next request of an export: for everything that is left, or for its
 * earliest window. Pure.
 */
import { BEGINNING, type Micros, SECOND_MICROS } from '../../time/time.ts';
import type { StreamSeen, WindowPlan } from './window-plan.ts';
import type { SourceProfile } from './profile.ts';
import type { Range } from '../../ledger/ranges.ts';
import {
  type RequestPlan,
  closedRange,
  planRequest,
  type Target,
} from './remaining.ts';

/** How much earlier the fallback request starts if known rows were not returned. */
const FALLBACK_MARGIN_MICROS = 3600n * SECOND_MICROS;

/** What to request next, and the target that it was planned for. */
export interface NextWindow {
  readonly plan: RequestPlan;
  readonly target: Target;
  /** Whether the request would have an end if the source were known to apply one. */
  readonly wantsEnd: boolean;
}

/** A plan with the range that is sent for it. */
export interface PlannedRequest extends NextWindow {
  /**
   * The plan's own range, or a different range whose response must contain the same rows.
   */
  readonly request: RequestPlan['question'];
}

/** Returns the next request; undefined if everything is covered. */
export function nextWindow(
  wanted: Target,
  windows: WindowPlan,
): NextWindow | undefined {
  const target = { ...wanted, isSilent: windows.isSilent };
  const { profile } = target;
  const next = (plan: RequestPlan, wantsEnd: boolean): NextWindow => ({
    plan,
    target: wanted,
    wantsEnd,
  });
  const whole = planRequest(target);
  if (whole === undefined) return undefined;
  const isPast = whole.open === undefined || whole.open.to !== undefined;
  const range = closedRange(whole);
  if (range === undefined) return next(whole, isPast);
  // An unknown release is not treated as unproven, because its response shows whether
  // it applies both bounds.
  const isUnknown =
    profile.header === undefined && profile.bounds === undefined;
  const isUnproven = profile.bounds !== 'right' && !isUnknown;
  // Without a known entry, nothing could prove that an end is applied. A later start
  // makes the request smaller too, and its response shows entries.
  const from =
    isUnproven && profile.known === undefined
      ? windows.laterStart(range)
      : undefined;
  const later =
    from === undefined
      ? undefined
      : planRequest({ ...target, from, isWindow: true });
  if (later !== undefined) return next(later, false);
  const to = windowEnd(whole, range, target, windows);
  if (to === undefined) return next(whole, isPast);
  if (isUnproven) return next(whole, true);
  const bounded = { ...profile, bounds: 'right' } as const;
  const window = planRequest({
    ...target,
    profile: bounded,
    to,
    closedTo: to,
    isWindow: true,
  });
  if (window === undefined || (closedRange(window)?.to ?? range.to) >= range.to)
    return next(whole, isPast);
  return next(window, true);
}

/**
 * Returns the range to request for a plan.
 * @param way `fallback`: a different request that must return all rows of the plan.
 *   `startless fallback`: the same without a start, used if requests with a start
 *   returned no rows
 */
export function requestFor(
  plan: RequestPlan,
  profile: SourceProfile,
  way: 'primary' | 'fallback' | 'startless fallback',
): RequestPlan['question'] {
  return way === 'primary'
    ? primaryRequest(plan)
    : fallbackRequest(plan, profile, way === 'startless fallback');
}

/**
 * Returns the request for the plan's own range. Its start is left out unless a known row
 * can show whether the source understood it. In both cases, only the rows of the range
 * are kept.
 */
function primaryRequest({
  question,
  overlap,
}: RequestPlan): RequestPlan['question'] {
  return overlap?.isStartless === true ? withoutStart(question) : question;
}

function fallbackRequest(
  { question, overlap }: RequestPlan,
  { sides, boundsDemanded }: SourceProfile,
  isStartDoubted: boolean,
): RequestPlan['question'] {
  const { from, to } = question;
  const isStartless = isStartDoubted || overlap?.isStartless === true;
  const mayDropEnd =
    boundsDemanded !== true && (sides === 'both' || isStartDoubted);
  if (to !== undefined && mayDropEnd)
    return from === undefined || isStartless ? {} : { from };
  if (isStartless) return withoutStart(question);
  return from !== undefined && from > FALLBACK_MARGIN_MICROS
    ? { ...question, from: from - FALLBACK_MARGIN_MICROS }
    : question;
}

/**
 * Removes the start. An end is never sent without a start, so if there is an end, the
 * start becomes 1970 instead. That is before all entries, whichever unit the source
 * reads it in.
 */
function withoutStart({
  to,
}: RequestPlan['question']): RequestPlan['question'] {
  return to === undefined ? {} : { from: BEGINNING, to };
}

/**
 * Returns the window plan as it would be if the current response were cancelled;
 * undefined if the next request would be no smaller, so the response must run to its
 * end.
 * @param mayBound whether the release may turn out to apply an end, which the response
 *   or a known entry would show
 */
export function planShrunk(
  { plan, target }: NextWindow,
  windows: WindowPlan,
  seen: StreamSeen,
  mayBound: boolean,
): WindowPlan | undefined {
  const range = closedRange(plan);
  if (range === undefined) return undefined;
  const lost = windows.afterOutgrown(seen, range);
  const hoped = mayBound
    ? { ...target, profile: { ...target.profile, bounds: 'right' as const } }
    : target;
  const next = nextWindow(hoped, lost)?.plan;
  const after = next && closedRange(next);
  return after !== undefined && after.to - after.from < range.to - range.from
    ? lost
    : undefined;
}

/**
 * Returns where to end the next request; undefined if it can cover the whole range. The
 * first closed range gets its own request if a lot of known data lies between it and
 * the last closed range.
 */
function windowEnd(
  whole: RequestPlan,
  range: Range,
  { coverage }: Target,
  windows: WindowPlan,
): Micros | undefined {
  const first = whole.closed[0];
  const bytesBetween = coverage
    .filter(
      (row) =>
        row.from >= range.from &&
        row.to <= range.to &&
        !whole.supersedes.includes(row),
    )
    .reduce((sum, row) => sum + Number(row.content?.bytes ?? 0n), 0);
  const isApart =
    first !== undefined &&
    first.to < range.to &&
    bytesBetween > windows.streamBytesMax / 2;
  const stretch = isApart ? first : range;
  return windows.cut(stretch) ?? (isApart ? first.to : undefined);
}
