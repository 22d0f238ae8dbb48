/** What an export says of itself: the verdict's evidence, for people and for the checks of other stages. */
import { formatInstant } from '../core/time.ts';
import type { Verdict } from '../core/verdict.ts';
import type { Sides } from '../ledger/header.ts';
import type { Coverage, ExportScope, Publication, SourceProfile } from './ports.ts';
import type { ExportOutcome, ExportRequest } from './request.ts';

export interface ExportFacts {
  readonly scope: ExportScope;
  readonly request: ExportRequest;
  readonly requests: number;
  /** Answers that were cancelled as too large, and what was lost with them and with those that broke. */
  readonly cancelled: number;
  readonly received: { readonly bytes: number; readonly rows: number };
  readonly leftOut: { readonly party: bigint; readonly asset: bigint; readonly range: bigint };
  readonly published: readonly Publication[];
  /** Of the last answer, where there was one. */
  readonly last:
    | { readonly sides: Sides; readonly profile: SourceProfile; readonly coverage: readonly Coverage[] }
    | undefined;
  readonly evidence: Record<string, unknown>;
}

export function exportOutcome(verdict: Verdict, facts: ExportFacts): ExportOutcome {
  const { scope, request, requests, received, leftOut, last } = facts;
  const manifests = facts.published.flatMap(({ segments }) => segments.map(({ manifest }) => manifest));
  const rows = manifests.reduce((sum, manifest) => sum + manifest.rows, 0n);
  return {
    verdict,
    rows,
    bytes: manifests.reduce((sum, manifest) => sum + manifest.bytes, 0n),
    requests,
    objectKeys: manifests.map((manifest) => manifest.objectKey),
    evidence: {
      party: scope.partyId,
      asset: scope.assetId ?? 'all',
      closedTo: formatInstant(request.closedTo),
      sides: last?.sides,
      requests,
      ...(facts.cancelled === 0 ? {} : { cancelled: facts.cancelled }),
      receivedRows: String(received.rows),
      receivedBytes: String(received.bytes),
      publishedRows: String(rows),
      segments: manifests.length,
      leftOut: { party: String(leftOut.party), asset: String(leftOut.asset), range: String(leftOut.range) },
      ...(last?.profile.bounds === 'broken' ? { release: brokenNote(last.profile) } : {}),
      ...(last !== undefined && isMixed(last) ? { mixedSides: MIXED_NOTE } : {}),
      ...facts.evidence,
    },
  };
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
