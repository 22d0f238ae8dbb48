/**
 * What a party's manifests and its recorded coverage say together. Pure. Nothing is claimed that neither
 * says: a recorded range whose object is gone is not covered.
 */
import type { RecordedRange } from '../ledger/objects/coverage-record.ts';
import type { Manifest } from '../ledger/objects/manifest.ts';
import { doRangesOverlap } from './plan.ts';
import type { RebuiltParty } from './ports.ts';
import type { RecordedParty } from './coverage-records.ts';

interface Claim {
  readonly seq: bigint;
  readonly range: RecordedRange;
  readonly manifest: Manifest | undefined;
}

/**
 * Where claims overlap, the newest holds: a record's, or that of a manifest which was published behind it.
 * What nothing newer covers stays uncovered, and is asked again one day.
 */
export function reconcile(
  partyId: string,
  manifests: readonly Manifest[],
  recorded: RecordedParty | undefined,
): RebuiltParty {
  const byKey = new Map(manifests.map((manifest) => [manifest.objectKey, manifest]));
  const claims: Claim[] = [];
  for (const range of recorded?.coverage ?? []) {
    const manifest = range.objectKey === null ? undefined : byKey.get(range.objectKey);
    if (range.objectKey !== null && manifest === undefined) continue;
    claims.push({ seq: recorded?.seq ?? 0n, range, manifest });
  }
  const listed = new Set(claims.map(({ manifest }) => manifest));
  for (const manifest of manifests) {
    if (!listed.has(manifest)) claims.push({ seq: manifest.seq, range: rangeOf(manifest), manifest });
  }
  const held: Claim[] = [];
  const superseded: Manifest[] = [];
  for (const claim of claims.toSorted((a, b) => Number(b.seq - a.seq))) {
    if (!held.some((newer) => doRangesOverlap(claim.range, newer.range))) held.push(claim);
    else if (claim.manifest !== undefined) superseded.push(claim.manifest);
  }
  return {
    partyId,
    // What was closed as it stood is open in its manifest.
    current: held.flatMap(({ manifest, range }) =>
      manifest === undefined ? [] : [{ ...manifest, open: range.open }],
    ),
    superseded,
    coverage: held.map(({ range }) => range),
  };
}

function rangeOf(manifest: Manifest): RecordedRange {
  const { assetId, from, to, open, sides, objectKey, runId, publishedAt } = manifest;
  return { assetId, from, to, open, sides, objectKey, tail: null, runId, checkedAt: publishedAt };
}
