/** The next question of a scope: all that is left of it, or its earliest piece. Pure. */
import { DAY_MICROS, type Micros } from '../../core/time.ts';
import { closedRange } from '../validate/judge.ts';
import type { WindowPlan } from './window-plan.ts';
import type { Coverage, SourceProfile } from '../ports.ts';
import type { Range } from './ranges.ts';
import { type AskPlan, planAsk, type Target } from './remaining.ts';
import { secondOf } from '../validate/tail.ts';

/** So many nights say what the next will hold. */
const EXPECTED_BY_MICROS = 7n * DAY_MICROS;

export interface NextPlan {
  readonly plan: AskPlan;
  /** It would have an end if the source were known to apply it. */
  readonly wantsEnd: boolean;
}

/** @returns undefined where everything is covered */
export function nextPlan(
  target: Target,
  coverage: readonly Coverage[],
  profile: SourceProfile,
  windows: WindowPlan,
  distrusted?: Range,
): NextPlan | undefined {
  const whole = planAsk(target, coverage, profile, distrusted);
  if (whole === undefined) return undefined;
  const bounded = planAsk(target, coverage, { ...profile, bounds: 'right' }, distrusted);
  const isPast = bounded?.question.to !== undefined;
  const range = closedRange(whole);
  const cut = range === undefined ? undefined : cutOf(whole, range, coverage, windows);
  if (range === undefined || cut === undefined) return { plan: whole, wantsEnd: isPast };
  if (profile.bounds !== 'right') return { plan: whole, wantsEnd: true };
  for (let to = cut; to < range.to;) {
    const piece = planAsk({ ...target, to, closedTo: to, isWindow: true }, coverage, profile, distrusted);
    // A segment is taken over whole or not at all: where one reaches over the cut, the piece does, too.
    const reach =
      piece?.supersedes.reduce((latest, row) => (row.to > latest ? row.to : latest), to) ?? range.to;
    if (piece !== undefined && reach <= to) return { plan: piece, wantsEnd: true };
    to = reach;
  }
  return { plan: whole, wantsEnd: isPast };
}

/** Known stretches between the ranges that hold much are worth a question of their own. */
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
