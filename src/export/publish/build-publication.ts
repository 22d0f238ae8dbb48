/** Turns a received answer into what one COMMIT will make true. */
import { randomUUID } from 'node:crypto';
import { ceilSecond, type Micros, nowMicros, SECOND_MICROS } from '../../core/time.ts';
import type { Layout } from '../../ledger/header.ts';
import type { Manifest } from '../../ledger/objects/manifest.ts';
import { segmentKey } from '../../ledger/objects/object-keys.ts';
import type { Coverage, NewCoverage } from '../store/coverage-rows.ts';
import type { ExportScope } from '../ports.ts';
import type { Publication } from '../store/publications.ts';
import type { ReceivedSegment } from '../spool/answer-rows.ts';
import { instantOf, later } from '../plan/ranges.ts';
import type { Received } from '../fetch/receive.ts';
import type { AskPlan } from '../plan/remaining.ts';
import type { Spooled } from '../spool/range-spool.ts';
import type { Kept } from './trim.ts';
import type { ExportRequest } from '../request.ts';

export interface PublicationContext {
  readonly scope: ExportScope;
  readonly request: ExportRequest;
  /** Without objects there is none: only manifests name it. */
  readonly manifests: ManifestContext | undefined;
  readonly epoch: number | undefined;
  /** Open coverage that the source contradicts: closed as it stands, though it did not come back. */
  readonly closesKept: readonly Coverage[];
  /** `open`: nothing of the answer is closed, and all of it is asked for again. */
  readonly as: 'closed' | 'open';
  /** No row tells when it was: what is open is all there is, rows or not. */
  readonly isTimeless: boolean;
}

/** What the manifests of one publication have in common. */
export type ManifestContext = Pick<Manifest, 'compression' | 'warehouseId' | 'seq' | 'source' | 'runId'>;

/** What becomes of an answer's ranges. */
export interface AnswerParts {
  readonly fresh: readonly ReceivedSegment[];
  /** Known segments that came back unchanged: their ranges are not among the fresh ones. */
  readonly stands: readonly Coverage[];
  /** What is left of segments of which the answer takes a part. */
  readonly kept: readonly Kept[];
}

type Segments = Publication['segments'][number][];

/** What a manifest says of where its rows come from. */
type Origin = Pick<Received, 'leftOut' | 'contentType' | 'extensions'> & { readonly layout: Layout };

/** Rows that were read from the store, not from an answer. */
export const OF_THE_STORE = {
  leftOut: { party: 0n, asset: 0n, range: 0n },
  contentType: undefined,
  extensions: [],
} as const;

export function buildPublication(
  plan: AskPlan,
  received: Received,
  { fresh, stands, kept }: AnswerParts,
  known: readonly Coverage[],
  context: PublicationContext,
): Publication {
  const tail = context.as === 'open' ? undefined : received.tail?.result(received.header);
  const closedEnd = plan.closed.at(-1)?.to;
  const segments: Segments = [];
  const coverage = [
    ...coverageOf(fresh, received, segments, context).map((range) =>
      !range.open && range.to === closedEnd ? { ...range, tail } : range,
    ),
    ...kept.flatMap((part) => keptCoverage(part, segments, context)),
  ];
  const { closesKept, as } = context;
  const trimmed = as === 'open' ? [] : plan.trims.map(({ row }) => row);
  const supersedes = [...plan.supersedes.filter((row) => !stands.includes(row)), ...trimmed];
  return {
    publicationId: randomUUID(),
    runId: context.request.runId,
    segments,
    ...mergeEmpty(coverage, known, supersedes, context.scope),
    closes: [
      ...stands.map((row) => ({ coverageId: row.coverageId, tail: row.to === closedEnd ? tail : undefined })),
      ...closesKept.map(({ coverageId }) => ({ coverageId })),
    ],
    epoch: context.epoch,
    lastEntryAt: received.newestSecond === undefined ? undefined : instantOf(received.newestSecond),
  };
}

/** An open range without entries claims nothing. */
function coverageOf(
  parts: readonly ReceivedSegment[],
  received: Received,
  segments: Segments,
  context: PublicationContext,
): NewCoverage[] {
  return parts.flatMap((part): NewCoverage[] => {
    const { from, open, spooled } = part;
    const to = part.to ?? openEnd(from, received, context.request.seenTime);
    if (spooled === undefined && open && !context.isTimeless) return [];
    const range = { from, to, open };
    const objectKey = spooled && add(segments, range, spooled, received, context.scope, context);
    return [{ ...range, sides: received.layout.sides, objectKey }];
  });
}

function keptCoverage(
  { row, range, written }: Kept,
  segments: Segments,
  context: PublicationContext,
): NewCoverage[] {
  if (written === undefined && row.open) return [];
  const isEnd = range.to === row.to && row.tail !== undefined && row.tail.from >= range.from;
  const place = { ...range, open: row.open };
  const owner = { partyId: context.scope.partyId, assetId: row.assetId };
  const objectKey =
    written &&
    add(segments, place, written.spooled, { ...OF_THE_STORE, layout: written.layout }, owner, context);
  const ofAsset = row.assetId ?? null;
  return [{ ...place, sides: row.sides, ofAsset, objectKey, tail: isEnd ? row.tail : undefined }];
}

function openEnd(from: Micros, received: Received, seenTime: Micros): Micros {
  const newest = instantOf(received.newestSecond ?? 0) + SECOND_MICROS;
  return [ceilSecond(seenTime), newest].reduce(later, from + SECOND_MICROS);
}

/** @returns the key of the object that the spooled rows become */
function add(
  segments: Segments,
  range: { from: Micros; to: Micros; open: boolean },
  spooled: Spooled,
  origin: Origin,
  owner: ExportScope,
  context: PublicationContext,
): string {
  if (context.manifests === undefined) throw new RangeError('an object without a number');
  const manifest = segmentManifest(range, spooled, origin, owner, context.manifests);
  segments.push({ spoolName: spooled.name, manifest });
  return manifest.objectKey;
}

/** What is said of a new object. */
export function segmentManifest(
  range: { from: Micros; to: Micros; open: boolean },
  spooled: Spooled,
  origin: Origin,
  owner: ExportScope,
  context: ManifestContext,
): Manifest {
  const { name: _name, path: _path, rows, ...sums } = spooled;
  return {
    version: 1,
    objectKey: segmentKey({ ...owner, ...range, sha256: sums.sha256, compression: context.compression }),
    ...context,
    partyId: owner.partyId,
    assetId: owner.assetId ?? null,
    ...range,
    sides: origin.layout.sides,
    columns: [...origin.layout.columns],
    rows: BigInt(rows),
    ...sums,
    leftOut: origin.leftOut,
    contentType: origin.contentType ?? null,
    extensions: [...origin.extensions],
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
    if (range.objectKey !== undefined || range.ofAsset !== undefined) {
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
    if (last?.to === range.from && last.objectKey === undefined && last.ofAsset === undefined)
      merged[merged.length - 1] = { ...range, from: last.from };
    else if (before === undefined) merged.push(range);
    else {
      supersedes.push(before.coverageId);
      merged.push({ ...range, from: before.from });
    }
  }
  return { coverage: merged, supersedes };
}
