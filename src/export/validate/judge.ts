/** Whether an answer that came to its end can be believed: held against everything that is known already. */
import { BEGINNING } from '../../core/time.ts';
import type { WindowPlan } from '../plan/window-plan.ts';
import type { Coverage } from '../store/coverage-rows.ts';
import type { WindowRequest } from '../ports.ts';
import type { Range } from '../plan/ranges.ts';
import type { Received } from '../fetch/receive.ts';
import type { AskPlan } from '../plan/remaining.ts';
import type { ReceivedSegment } from '../spool/answer-rows.ts';
import { compareOverlap, type OverlapFinding } from './overlap-check.ts';

/** What speaks against an answer. */
export type Doubt =
  | Extract<OverlapFinding, { state: 'fewer' | 'repeated' | 'other' }>
  /** A stream that did not come to its end had more of this range. */
  | { readonly state: 'less than seen' }
  /** The present of the last time has fewer rows than it had. */
  | { readonly state: 'fewer in the open segment'; readonly knownRows: string; readonly receivedRows: string }
  /** Nothing left the party between a start and an end: what a release answers that applies them wrongly. */
  | { readonly state: 'nothing left' }
  /** Nothing came from the start on, and no known row was to come: it may mean another time to the source. */
  | { readonly state: 'start unproven' }
  /** Neither the transport nor a line end says that the answer came to its end, and no second answer was the same. */
  | { readonly state: 'end unproven' };

/** What speaks against the answers to the plan in hand. */
export interface Doubts {
  readonly found: Doubt[];
  requests: number;
  lastSums: string | undefined;
  /** Nothing left the party, and asking a second way could not show more. */
  isEmptyBelieved?: boolean;
}

export const NO_DOUBTS = (): Doubts => ({ found: [], requests: 0, lastSums: undefined });

export interface Judgement {
  /** What became of the overlap check, where there is one. */
  readonly overlap: string | undefined;
  readonly doubt: Doubt | undefined;
}

/** @param lastSums of the answer before this one to the same plan */
export function judge(
  plan: AskPlan,
  question: Pick<WindowRequest, 'from' | 'to'>,
  received: Received,
  windows: WindowPlan,
  lastSums: string | undefined,
  boundsDemanded: boolean,
): Judgement {
  const finding = plan.overlap === undefined ? undefined : compareOverlap(plan.overlap, received);
  const gone = finding?.state === 'fewer' ? plan.overlap?.mayBeGone : undefined;
  const overlap = gone ?? finding?.state;
  if (finding !== undefined && 'expected' in finding && gone === undefined)
    return { overlap, doubt: finding };
  const range = closedRange(plan);
  if (range !== undefined && windows.isLess(received.seen.stretches, range)) {
    return { overlap, doubt: { state: 'less than seen' } };
  }
  const fewer = fewerInOpen(plan, received);
  if (fewer !== undefined) return { overlap, doubt: fewer };
  const isLoose = !plan.isWindow && !windows.isSilent && (plan.overlap === undefined || gone !== undefined);
  if (isLoose && received.rows === 0 && (question.from ?? BEGINNING) > BEGINNING)
    return { overlap, doubt: { state: 'start unproven' } };
  const isProven = overlap === 'verified' && received.before.rows > 0;
  const isEmptied =
    !boundsDemanded &&
    question.to !== undefined &&
    received.layout.sides === 'both' &&
    received.leaving === 0;
  if (isEmptied && !isProven) return { overlap, doubt: { state: 'nothing left' } };
  return { overlap, doubt: isEndProven(received, lastSums) ? undefined : { state: 'end unproven' } };
}

/** By a framing and a line end, or by the same answer a second time. */
export function isEndProven(received: Received, lastSums: string | undefined): boolean {
  return (received.isFramed && received.openLine === undefined) || lastSums === sumsOf(received);
}

/** Of what must come again in the same way, whatever is new meanwhile. Where nothing is closed, that is all of it. */
export function sumsOf({ before, segments, openLine = '' }: Received): string {
  const closed = segments.filter(({ open }) => !open);
  const digests = (closed.length === 0 ? segments : closed).map(({ spooled }) => spooled?.digest ?? 'empty');
  return [before.rows, before.digest.hex(), ...digests, openLine].join(' ');
}

/** The segment that holds the same rows as one that is known, in the same range. */
export function isSame(segment: ReceivedSegment, row: Coverage, sides: Coverage['sides']): boolean {
  const { from, to, open, spooled } = segment;
  return (
    !open &&
    from === row.from &&
    to === row.to &&
    spooled !== undefined &&
    BigInt(spooled.rows) === row.rows &&
    spooled.digest === row.content?.digest &&
    spooled.rowForm === row.content.rowForm &&
    sides === row.sides
  );
}

/** Rows of the present that was known have vanished: as with the overlap, what is known stays. */
export function fewerInOpen({ supersedes }: AskPlan, { segments, layout }: Received): Doubt | undefined {
  for (const row of supersedes.filter(({ open }) => open)) {
    const hasOtherSides = row.sides !== 'unknown' && row.sides !== layout.sides;
    // What lies in its range, whether closed by now or not.
    const inside = segments.filter(({ from, to }) => from < row.to && (to === undefined || to > row.from));
    const receivedRows = inside.reduce((sum, { spooled }) => sum + BigInt(spooled?.rows ?? 0), 0n);
    if (hasOtherSides || receivedRows >= row.rows) continue;
    return {
      state: 'fewer in the open segment',
      knownRows: String(row.rows),
      receivedRows: String(receivedRows),
    };
  }
  return undefined;
}

/** What is lost in the store and loaded is the only copy. */
export function isHeld({ isFaulty, isLoaded }: Coverage): boolean {
  return isFaulty !== true || isLoaded === true;
}

/** @returns the closed segments that an answer would replace by less */
export function shrinking(plan: AskPlan, received: Received): readonly Coverage[] {
  const believed = plan.supersedes.filter((row) => !row.open && isHeld(row));
  const knownRows = believed.reduce((sum, row) => sum + row.rows, 0n);
  const closed = received.segments.filter(({ open }) => !open);
  const receivedRows = closed.reduce((sum, { spooled }) => sum + BigInt(spooled?.rows ?? 0), 0n);
  return receivedRows >= knownRows ? [] : believed.filter(({ rows }) => rows > 0n);
}

/** From the first closed range to the end of the last. */
export function closedRange(plan: AskPlan): Range | undefined {
  const [first, last] = [plan.closed[0], plan.closed.at(-1)];
  return first === undefined || last === undefined ? undefined : { from: first.from, to: last.to };
}

/** Of the rows that are closed by an answer: not what it repeats, nor the present. */
export function closedBytes({ segments }: Received): number {
  return segments.reduce((sum, { open, spooled }) => (open ? sum : sum + Number(spooled?.bytes ?? 0n)), 0);
}
