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

/** What the manifests of one publication have in common, beside its number. */
export type ManifestFacts = Pick<Manifest, 'partyId' | 'compression' | 'source' | 'runId'>;

/** Numbers the publication, where there is an object: only manifests name the number. */
export async function nameObjects(
  ranges: readonly NewRange[],
  facts: ManifestFacts,
  repository: Pick<ExportStore, 'nextSeq'>,
): Promise<Pick<Publication, 'segments' | 'coverage'>> {
  if (ranges.every(({ written }) => written === undefined)) return { segments: [], coverage: [...ranges] };
  const numbered = { ...facts, ...(await repository.nextSeq()) };
  const segments: Publication['segments'] = [];
  const coverage = ranges.map(({ written, ...range }) => {
    if (written === undefined) return range;
    const manifest = describeObject(range, written, numbered);
    segments.push({ spoolName: written.spooled.name, manifest });
    return { ...range, objectKey: manifest.objectKey };
  });
  return { segments, coverage };
}

function describeObject(
  { assetId, from, to, open }: NewCoverage,
  { spooled, layout, leftOut }: Written,
  facts: ManifestFacts & Pick<Manifest, 'warehouseId' | 'seq'>,
): Manifest {
  const { name: _name, path: _path, rows, ...sums } = spooled;
  const { sides, columns } = layout;
  const place = { partyId: facts.partyId, assetId: assetId ?? undefined, from, to, open };
  return {
    version: 1,
    objectKey: segmentKey({ ...place, sha256: sums.sha256, compression: facts.compression }),
    ...facts,
    ...place,
    assetId,
    sides,
    columns: [...columns],
    rows: BigInt(rows),
    ...sums,
    leftOut,
    publishedAt: nowMicros(),
  };
}
