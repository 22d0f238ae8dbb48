/** What an export says of itself: the verdict's evidence, for people and for the checks of other stages. */
import { ceilSecond, formatInstant } from '../core/time.ts';
import { type VerdictWithEvidence, worst, type Verdict } from '../core/verdict.ts';
import type { Sides } from '../ledger/header.ts';
import type { Coverage } from './store/coverage-rows.ts';
import type { ExportScope } from './ports.ts';
import type { PublishedSegment } from './store/export-store.ts';
import type { SourceProfile } from './store/source-profile.ts';
import type { ExportOutcome, ExportRequest } from './request.ts';
import type { Tally } from './validate/tally.ts';

export interface ExportFacts {
  readonly scope: ExportScope;
  readonly request: ExportRequest;
  readonly requests: number;
  readonly tally: Tally;
  /** By this run, whoever worked it. */
  readonly published: readonly PublishedSegment[];
  /** Of the last answer, where there was one. */
  readonly last:
    | { readonly sides: Sides; readonly profile: SourceProfile; readonly coverage: readonly Coverage[] }
    | undefined;
  readonly evidence: Record<string, unknown>;
}

/** The requests that a run may make are used up. */
export function exhausted(requests: number, fruitless: number): VerdictWithEvidence {
  const reason = `the source was asked ${requests} times, the last ${fruitless} in vain; the next run goes on`;
  return { verdict: 'incomplete', evidence: { reason } };
}

export function exportOutcome(verdict: Verdict, facts: ExportFacts): ExportOutcome {
  const { scope, request, requests, tally, last, published } = facts;
  const rows = published.reduce((sum, segment) => sum + segment.rows, 0n);
  const replacedRows = published.reduce((sum, segment) => sum + segment.replaced, 0n);
  const { leftOut } = tally;
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
      sides: last?.sides,
      requests,
      ...(tally.cancelled === 0 ? {} : { cancelled: tally.cancelled }),
      receivedRows: String(tally.received),
      receivedBytes: String(tally.bytes),
      publishedRows: String(rows),
      replacedRows: String(replacedRows),
      heldRows: String(tally.held),
      ...(tally.unused <= 0 ? {} : { rowsOfAnswersNotUsed: String(tally.unused) }),
      segments: published.length,
      leftOut: { party: String(leftOut.party), asset: String(leftOut.asset), range: String(leftOut.range) },
      ...(tally.keptNotes.length === 0 ? {} : { kept: tally.keptNotes }),
      ...(tally.audits.length === 0 ? {} : { audited: tally.audits }),
      ...(last?.profile.bounds === 'broken' ? { release: brokenNote(last.profile) } : {}),
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

function isMixed({ sides, coverage }: NonNullable<ExportFacts['last']>): boolean {
  return coverage.some(
    (row) => row.objectKey !== undefined && row.sides !== 'unknown' && row.sides !== sides && !row.open,
  );
}
