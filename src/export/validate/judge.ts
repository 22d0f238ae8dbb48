/** Whether an answer that came to its end can be believed: asked against everything that is known already. */
import { type AnchorFinding, compareAnchor } from './overlap-check.ts';
import type { WindowPlan } from '../plan/window-plan.ts';
import type { WindowRequest } from '../ports.ts';
import type { Range } from '../plan/ranges.ts';
import type { Received } from '../fetch/receive.ts';
import type { AskPlan } from '../plan/remaining.ts';

/** What speaks against an answer. */
export type Doubt =
  | Extract<AnchorFinding, { state: 'fewer' | 'other' }>
  /** A stream that did not come to its end had more of this range. */
  | { readonly state: 'less than seen' }
  /** Nothing left the party between a start and an end: what a release answers that applies them wrongly. */
  | { readonly state: 'nothing left' };

export interface Judgement {
  /** What became of the anchor, where there is one. */
  readonly anchor: AnchorFinding['state'] | undefined;
  readonly doubt: Doubt | undefined;
}

export function judge(
  plan: AskPlan,
  question: Pick<WindowRequest, 'to'>,
  received: Received,
  windows: WindowPlan,
): Judgement {
  const finding = plan.anchor === undefined ? undefined : compareAnchor(plan.anchor, received);
  const anchor = finding?.state;
  if (finding?.state === 'fewer' || finding?.state === 'other') return { anchor, doubt: finding };
  const range = closedRange(plan);
  if (range !== undefined && windows.isLess(received.seen.sample, range)) {
    return { anchor, doubt: { state: 'less than seen' } };
  }
  const isProven = anchor === 'verified' && received.before.rows > 0;
  const isEmptied = question.to !== undefined && received.layout.sides === 'both' && received.leaving === 0;
  return { anchor, doubt: isEmptied && !isProven ? { state: 'nothing left' } : undefined };
}

/** @returns how much less a range holds than the closed segments that it would replace */
export function shrinking(
  plan: AskPlan,
  received: Received,
): { readonly knownRows: string; readonly receivedRows: string } | undefined {
  const knownRows = plan.supersedes.reduce((sum, row) => sum + (row.open ? 0n : row.rows), 0n);
  const closed = received.parts.filter((part) => !part.open);
  const receivedRows = closed.reduce((sum, part) => sum + BigInt(part.spooled?.rows ?? 0), 0n);
  if (receivedRows >= knownRows) return undefined;
  return { knownRows: String(knownRows), receivedRows: String(receivedRows) };
}

/** From the first closed range to the end of the last. */
export function closedRange(plan: AskPlan): Range | undefined {
  const [first, last] = [plan.closed[0], plan.closed.at(-1)];
  return first === undefined || last === undefined ? undefined : { from: first.from, to: last.to };
}
