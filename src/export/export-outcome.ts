/** What an export says of itself: the verdict's evidence, for people and for the checks of other stages. */
import { ceilSecond, formatInstant } from '../core/time.ts';
import type { VerdictWithEvidence } from '../core/verdict.ts';
import type { SourceProfile } from './store/source-profile.ts';
import type { ExportRequest } from './request.ts';
import type { Answered } from './validate/judge.ts';

/** The requests that a run may make are used up. */
export function exhausted(requests: number, fruitless: number): VerdictWithEvidence {
  const reason = `the source was asked ${requests} times, the last ${fruitless} in vain; the next run goes on`;
  return { verdict: 'incomplete', evidence: { reason } };
}

/** What the last answer that was published says of the source. */
export function describeAnswer(last: Answered | undefined): Record<string, unknown> {
  return {
    sides: last?.received.layout.sides,
    ...(last?.learned.bounds === 'broken' ? { release: brokenNote(last.learned) } : {}),
    ...(last !== undefined && isMixed(last) ? { mixedSides: MIXED_NOTE } : {}),
  };
}

/** What has not happened yet nobody can show. */
export function aheadNote({ to, clock: { seen, closedTo } }: ExportRequest): string | undefined {
  if (to === undefined || ceilSecond(to) <= seen) return undefined;
  return `the range ends behind the source's time, ${formatInstant(seen)}; it is complete up to ${formatInstant(closedTo)}`;
}

const MIXED_NOTE =
  'earlier ranges hold only what left the party, later ones both sides: the source sends more than it did';

function brokenNote({ evidence }: SourceProfile): string {
  return `filters wrongly (${evidence ?? 'seen before'}): never divided, and everything that came in is sent each time`;
}

function isMixed({ received, target }: Answered): boolean {
  const { sides } = received.layout;
  return target.coverage.some(
    (row) => row.objectKey !== undefined && row.sides !== 'unknown' && row.sides !== sides && !row.open,
  );
}
