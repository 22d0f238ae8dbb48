/** What an export says of itself: the verdict's evidence, for people and for the checks of other stages. */
import { ceilSecond, formatInstant } from '../core/time.ts';
import { type VerdictWithEvidence, worst, type Verdict } from '../core/verdict.ts';
import type { ExportScope } from './ports.ts';
import type { PublishedSegment } from './store/export-store.ts';
import type { SourceProfile } from './store/source-profile.ts';
import type { ExportOutcome, ExportRequest } from './request.ts';
import type { Answered } from './validate/judge.ts';

export interface ExportFacts {
  readonly scope: ExportScope;
  readonly request: ExportRequest;
  readonly requests: number;
  /** By this run, whoever worked it. */
  readonly published: readonly PublishedSegment[];
  /** The last answer that was published, where there was one. */
  readonly last: Answered | undefined;
  readonly evidence: Record<string, unknown>;
}

/** The requests that a run may make are used up. */
export function exhausted(requests: number, fruitless: number): VerdictWithEvidence {
  const reason = `the source was asked ${requests} times, the last ${fruitless} in vain; the next run goes on`;
  return { verdict: 'incomplete', evidence: { reason } };
}

export function exportOutcome(verdict: Verdict, facts: ExportFacts): ExportOutcome {
  const { scope, request, requests, last, published } = facts;
  const rows = published.reduce((sum, segment) => sum + segment.rows, 0n);
  const replacedRows = published.reduce((sum, segment) => sum + segment.replaced, 0n);
  const ahead = aheadNote(request);
  return {
    verdict: worst([verdict, ahead === undefined ? 'complete' : 'incomplete']),
    rows,
    replacedRows,
    bytes: published.reduce((sum, segment) => sum + segment.bytes, 0n),
    requests,
    objectKeys: published.map(({ objectKey }) => objectKey),
    evidence: {
      party: scope.partyId,
      asset: scope.assetId ?? 'all',
      closedTo: formatInstant(request.closedTo),
      sides: last?.received.layout.sides,
      requests,
      publishedRows: String(rows),
      replacedRows: String(replacedRows),
      segments: published.length,
      ...(last?.learned.bounds === 'broken' ? { release: brokenNote(last.learned) } : {}),
      ...(last !== undefined && isMixed(last) ? { mixedSides: MIXED_NOTE } : {}),
      ...(ahead === undefined ? {} : { reason: ahead }),
      ...facts.evidence,
    },
  };
}

/** What has not happened yet nobody can show. */
function aheadNote({ to, seenTime, closedTo }: ExportRequest): string | undefined {
  if (to === undefined || ceilSecond(to) <= seenTime) return undefined;
  return `the range ends behind the source's time, ${formatInstant(seenTime)}; it is complete up to ${formatInstant(closedTo)}`;
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
