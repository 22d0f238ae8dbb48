/** The next request of an export: all that is left of it, or its earliest window. Pure. */
import { BEGINNING, type Micros, SECOND_MICROS } from '../../time/time.ts';
import type { StreamSeen, WindowPlan } from './window-plan.ts';
import type { SourceProfile } from '../store/source-profile.ts';
import type { Range } from '../../ledger/ranges.ts';
import { type RequestPlan, closedRange, planRequest, type Target } from './remaining.ts';

/** How much earlier the fallback request starts if known rows did not come back. */
const FALLBACK_MARGIN_MICROS = 3600n * SECOND_MICROS;

/** What is to be asked, and what it follows from. */
export interface NextWindow {
  readonly plan: RequestPlan;
  readonly target: Target;
  /** It would have an end if the source were known to apply it. */
  readonly wantsEnd: boolean;
}

export interface PlannedRequest extends NextWindow {
  /** The plan's question, or another that must hold the same. */
  readonly request: RequestPlan['question'];
}

/** @returns undefined where everything is covered */
export function nextWindow(wanted: Target, windows: WindowPlan): NextWindow | undefined {
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
  // Nothing is known of the release yet: its answer will show whether it applies both bounds.
  const isUnknown = profile.header === undefined && profile.bounds === undefined;
  const isUnproven = profile.bounds !== 'right' && !isUnknown;
  // No entry is known by which an end could be proven: a later start is about less as well, and shows entries.
  const from =
    isUnproven && profile.known === undefined ? windows.laterStart(range) : undefined;
  const later =
    from === undefined ? undefined : planRequest({ ...target, from, isWindow: true });
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
 * @param way `fallback`: another request that must bring the same rows, and those of the
 *   plan. `startless fallback`: the same without a start, since nothing came with one
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
 * If no known row would show that a start was understood, none is sent. The range stays
 * the same, and the other rows that come are left out.
 */
function primaryRequest({ question, overlap }: RequestPlan): RequestPlan['question'] {
  return overlap?.isStartless === true ? withoutStart(question) : question;
}

function fallbackRequest(
  { question, overlap }: RequestPlan,
  { sides, boundsDemanded }: SourceProfile,
  isStartDoubted: boolean,
): RequestPlan['question'] {
  const { from, to } = question;
  const isStartless = isStartDoubted || overlap?.isStartless === true;
  const mayDropEnd = boundsDemanded !== true && (sides === 'both' || isStartDoubted);
  if (to !== undefined && mayDropEnd)
    return from === undefined || isStartless ? {} : { from };
  if (isStartless) return withoutStart(question);
  return from !== undefined && from > FALLBACK_MARGIN_MICROS
    ? { ...question, from: from - FALLBACK_MARGIN_MICROS }
    : question;
}

/** 1970 is before all entries, in whichever unit. */
function withoutStart({ to }: RequestPlan['question']): RequestPlan['question'] {
  return to === undefined ? {} : { from: BEGINNING, to };
}

/**
 * What an answer may be cancelled for: that the next request is about less. Otherwise it must run to its end.
 * @param mayBound what it taught of the release, or a known entry, may show that it applies an end
 * @returns the windows, had the answer been cancelled; undefined where that would not shrink the next request
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

/** Known stretches between the ranges that hold much are worth a request of their own. */
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
        row.from >= range.from && row.to <= range.to && !whole.supersedes.includes(row),
    )
    .reduce((sum, row) => sum + Number(row.content?.bytes ?? 0n), 0);
  const isApart =
    first !== undefined &&
    first.to < range.to &&
    bytesBetween > windows.streamBytesMax / 2;
  const stretch = isApart ? first : range;
  return windows.cut(stretch) ?? (isApart ? first.to : undefined);
}
