/** Turns a received answer into what one COMMIT will make true. */
import { randomUUID } from 'node:crypto';
import { ceilSecond, type Micros, nowMicros, SECOND_MICROS } from '../../core/time.ts';
import type { Manifest } from '../../ledger/manifest.ts';
import { type Compression, segmentKey } from '../../ledger/object-keys.ts';
import type { Coverage, ExportScope, NewCoverage, Publication } from '../ports.ts';
import { instantOf, type ReceivedSegment } from '../spool/segment-spool.ts';
import type { Received } from '../fetch/receive.ts';
import type { AskPlan } from '../plan/remaining.ts';
import { type Spooled, withoutLineEnd } from '../spool/spool-writer.ts';

export interface PublicationContext {
  readonly scope: ExportScope;
  readonly runId: string;
  readonly source: string;
  readonly warehouseId: string;
  readonly seq: bigint;
  readonly compression: Compression;
  /** The source's own time: an open segment without an end reaches at least to it. */
  readonly seenTime: Micros;
  /** The plan's open segment came back unchanged; its range is not among the parts. */
  readonly isStanding: boolean;
}

/** @param parts what was received, cut to size */
export function buildPublication(
  plan: AskPlan,
  received: Received,
  parts: readonly ReceivedSegment[],
  known: readonly Coverage[],
  context: PublicationContext,
): Publication {
  const tail = received.tail?.result(withoutLineEnd(received.header));
  const standing = context.isStanding ? plan.standing : undefined;
  const supersedes = plan.supersedes.filter((row) => row !== standing);
  const closedEnd = plan.closed.at(-1)?.to;
  const segments: Publication['segments'][number][] = [];
  const coverage: NewCoverage[] = [];
  for (const part of parts) {
    const to = part.to ?? openEnd(part.from, received, context.seenTime);
    const manifest =
      part.spooled === undefined
        ? undefined
        : manifestOf({ from: part.from, to, open: part.open }, part.spooled, received, context);
    if (part.spooled !== undefined && manifest !== undefined) {
      segments.push({ spoolName: part.spooled.name, manifest });
    }
    // An open range without entries claims nothing.
    if (part.open && manifest === undefined) continue;
    coverage.push({
      from: part.from,
      to,
      open: part.open,
      sides: received.layout.sides,
      objectKey: manifest?.objectKey,
      tail: !part.open && to === closedEnd ? tail : undefined,
    });
  }
  const merged = mergeEmpty(coverage, known, supersedes, context.scope);
  return {
    publicationId: randomUUID(),
    runId: context.runId,
    segments,
    ...merged,
    closes:
      standing === undefined
        ? []
        : [{ coverageId: standing.coverageId, tail: standing.to === closedEnd ? tail : undefined }],
    lastEntryAt: received.newestSecond === undefined ? undefined : instantOf(received.newestSecond),
  };
}

function openEnd(from: Micros, received: Received, seenTime: Micros): Micros {
  const newest = instantOf(received.newestSecond ?? 0) + SECOND_MICROS;
  return [ceilSecond(seenTime), newest].reduce(
    (left, right) => (left > right ? left : right),
    from + SECOND_MICROS,
  );
}

function manifestOf(
  range: { from: Micros; to: Micros; open: boolean },
  spooled: Spooled,
  received: Received,
  context: PublicationContext,
): Manifest {
  const { scope, compression } = context;
  return {
    version: 1,
    objectKey: segmentKey({ ...scope, ...range, sha256: spooled.sha256, compression }),
    warehouseId: context.warehouseId,
    seq: context.seq,
    source: context.source,
    partyId: scope.partyId,
    assetId: scope.assetId ?? null,
    ...range,
    sides: received.layout.sides,
    columns: [...received.layout.columns],
    rows: BigInt(spooled.rows),
    bytes: spooled.bytes,
    sha256: spooled.sha256,
    compression,
    objectBytes: spooled.objectBytes,
    objectSha256: spooled.objectSha256,
    digest: spooled.digest,
    rowForm: spooled.rowForm,
    leftOut: received.leftOut,
    contentType: received.contentType ?? null,
    extensions: [...received.extensions],
    runId: context.runId,
    publishedAt: nowMicros(),
  };
}

/** Ranges without entries that touch become one row, so that an idle party keeps one row for ever. */
function mergeEmpty(
  coverage: readonly NewCoverage[],
  known: readonly Coverage[],
  superseded: readonly Coverage[],
  scope: ExportScope,
): { coverage: NewCoverage[]; supersedes: bigint[] } {
  const supersedes = superseded.map((row) => row.coverageId);
  const merged: NewCoverage[] = [];
  for (const range of coverage) {
    if (range.objectKey !== undefined) {
      merged.push(range);
      continue;
    }
    const last = merged.at(-1);
    const before = known.find(
      (row) =>
        row.to === range.from &&
        row.objectKey === undefined &&
        !row.open &&
        row.assetId === scope.assetId &&
        row.sides === range.sides &&
        !supersedes.includes(row.coverageId),
    );
    if (last?.to === range.from && last.objectKey === undefined)
      merged[merged.length - 1] = { ...range, from: last.from };
    else if (before === undefined) merged.push(range);
    else {
      supersedes.push(before.coverageId);
      merged.push({ ...range, from: before.from });
    }
  }
  return { coverage: merged, supersedes };
}
