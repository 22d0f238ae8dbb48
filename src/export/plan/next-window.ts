/** The next request of an export: all that is left of it, or its earliest window. Pure. */
import { DAY_MICROS, type Micros, SECOND_MICROS } from '../../core/time.ts';
import { closedRange } from '../validate/judge.ts';
import type { WindowPlan } from './window-plan.ts';
import type { Coverage } from '../store/coverage-rows.ts';
import type { SourceProfile } from '../store/source-profile.ts';
import type { Range } from './ranges.ts';
import { type AskPlan, planAsk, type Target } from './remaining.ts';
import { secondOf } from '../validate/tail.ts';

/** So many nights say what the next will hold. */
const EXPECTED_BY_MICROS = 7n * DAY_MICROS;

/** A second way to ask where known rows did not come back: the start a little earlier. */
const SECOND_WAY_MICROS = 3600n * SECOND_MICROS;

export interface NextWindow {
  readonly plan: AskPlan;
  /** It would have an end if the source were known to apply it. */
  readonly wantsEnd: boolean;
}

/** @returns undefined where everything is covered */
export function nextWindow(
  target: Target,
  coverage: readonly Coverage[],
  profile: SourceProfile,
  windows: WindowPlan,
): NextWindow | undefined {
  const whole = planAsk(target, coverage, profile);
  if (whole === undefined) return undefined;
  const bounded = planAsk(target, coverage, { ...profile, bounds: 'right' });
  const isPast = bounded?.question.to !== undefined;
  const range = closedRange(whole);
  // Nothing is known of the release yet: its answer will show whether it applies both bounds.
  const isUnknown = profile.header === undefined && profile.bounds === undefined;
  const isUnproven = profile.bounds !== 'right' && !isUnknown;
  // No entry is known by which an end could be proven: a later start is about less as well, and shows entries.
  const mayStartLater = isUnproven && range !== undefined && profile.known === undefined;
  const from = mayStartLater ? windows.laterStart(range) : undefined;
  const later =
    from === undefined ? undefined : planAsk({ ...target, from, isWindow: true }, coverage, profile);
  if (later !== undefined) return { plan: later, wantsEnd: false };
  const cut = range === undefined ? undefined : cutOf(whole, range, coverage, windows);
  if (range === undefined || cut === undefined) return { plan: whole, wantsEnd: isPast };
  if (isUnproven) return { plan: whole, wantsEnd: true };
  const window = planAsk({ ...target, to: cut, closedTo: cut, isWindow: true }, coverage, {
    ...profile,
    bounds: 'right',
  });
  const reach = window && closedRange(window);
  const isShorter = window !== undefined && reach !== undefined && reach.to < range.to;
  return isShorter ? { plan: window, wantsEnd: true } : { plan: whole, wantsEnd: isPast };
}

/** Another request that must bring the same rows, and those of the plan. */
export function secondWay(
  { question }: AskPlan,
  { sides, boundsDemanded }: SourceProfile,
): AskPlan['question'] {
  const { from, to } = question;
  if (to !== undefined && sides === 'both' && boundsDemanded !== true)
    return from === undefined ? {} : { from };
  return from !== undefined && from > SECOND_WAY_MICROS
    ? { ...question, from: from - SECOND_WAY_MICROS }
    : question;
}

/** Whether a cancelled answer would be followed by a request about less: otherwise it must run to its end. */
export function wouldShrink(
  plan: AskPlan,
  target: Target,
  coverage: readonly Coverage[],
  profile: SourceProfile,
  lost: WindowPlan,
): boolean {
  const [range, next] = [closedRange(plan), nextWindow(target, coverage, profile, lost)?.plan];
  if (range === undefined || next === undefined) return false;
  const after = closedRange(next);
  return after !== undefined && after.to - after.from < range.to - range.from;
}

/** Known stretches between the ranges that hold much are worth a request of their own. */
function cutOf(
  whole: AskPlan,
  range: Range,
  coverage: readonly Coverage[],
  windows: WindowPlan,
): Micros | undefined {
  const first = whole.closed[0];
  const bytesBetween = coverage
    .filter((row) => row.from >= range.from && row.to <= range.to && !whole.supersedes.includes(row))
    .reduce((sum, row) => sum + Number(row.content?.bytes ?? 0n), 0);
  const isApart = first !== undefined && first.to < range.to && bytesBetween > windows.streamBytesMax / 2;
  const stretch = isApart ? first : range;
  return windows.cut(stretch) ?? (isApart ? first.to : undefined);
}

/** What the last nights' segments lead to expect; undefined where there are none. */
export function expectedBytesPerSecond(coverage: readonly Coverage[], target: Target): number | undefined {
  const since = target.closedTo - EXPECTED_BY_MICROS;
  const lately = coverage.filter((row) => row.assetId === target.assetId && !row.open && row.from >= since);
  const [bytes, seconds] = lately.reduce(
    ([sum, length], row) => [
      sum + Number(row.content?.bytes ?? 0n),
      length + secondOf(row.to) - secondOf(row.from),
    ],
    [0, 0],
  );
  return bytes === 0 ? undefined : bytes / Math.max(1, seconds);
}
