/** What becomes known, whether an answer brought it or the store had it; and the manifests of the objects that hold it. */
import { nowMicros } from '../../core/time.ts';
import type { Layout } from '../../ledger/header.ts';
import type { Manifest } from '../../ledger/objects/manifest.ts';
import { segmentKey } from '../../ledger/objects/object-keys.ts';
import type { Spooled } from '../spool/range-spool.ts';
import type { NewCoverage } from '../store/coverage-rows.ts';
import type { ExportStore } from '../store/export-store.ts';
import type { Publication } from '../store/publications.ts';

/** Rows that were spooled, and where they come from. */
export interface Written extends Pick<Manifest, 'leftOut'> {
  readonly spooled: Spooled;
  readonly layout: Layout;
}

/** Of rows that were read from the store. */
export const NONE_LEFT_OUT = { party: 0n, asset: 0n, range: 0n } as const;

export interface NewRange extends Omit<NewCoverage, 'objectKey'> {
  /** Absent: nothing lies in the range. */
  readonly written?: Written | undefined;
}

/**
 * Numbers the publication, where there is an object: only manifests name the number.
 * @param facts what its manifests have in common
 */
export async function nameObjects(
  ranges: readonly NewRange[],
  facts: Pick<Manifest, 'partyId' | 'compression' | 'source' | 'runId'>,
  repository: Pick<ExportStore, 'nextSeq'>,
): Promise<Pick<Publication, 'segments' | 'coverage'>> {
  if (ranges.every(({ written }) => written === undefined)) return { segments: [], coverage: [...ranges] };
  const numbered = { version: 1 as const, ...facts, ...(await repository.nextSeq()) };
  const segments: Publication['segments'] = [];
  const coverage = ranges.map(({ written, ...range }) => {
    if (written === undefined) return range;
    const { assetId, from, to, open } = range;
    const { name: spoolName, path: _path, rows, ...sums } = written.spooled;
    const { sides, columns } = written.layout;
    const place = { assetId: assetId ?? undefined, from, to, sha256: sums.sha256 };
    const manifest: Manifest = {
      ...numbered,
      ...sums,
      objectKey: segmentKey({ ...facts, ...place }),
      assetId,
      from,
      to,
      open,
      sides,
      columns: [...columns],
      rows: BigInt(rows),
      leftOut: written.leftOut,
      publishedAt: nowMicros(),
    };
    segments.push({ spoolName, manifest });
    return { ...range, objectKey: manifest.objectKey };
  });
  return { segments, coverage };
}
