/**
 * What must change in `ledger_entries`. Rows never change once they are written: segments that are new are
 * appended, and a file is written again only where segments in it are gone. Open segments lie in files of
 * their own, as each is gone soon; so files of closed ones stay as they are.
 */
import type { SegmentMonth } from '../store/warehouse-reader.ts';
import type { EntriesFile } from './entries-file.ts';

/** Closed files below so many rows are small. */
const SMALL_ROWS = 250_000n;
/** So many small closed files a month are left alone. */
export const SMALL_FILES_MAX = 12;
/** Of the files that a compaction puts together. */
const COMPACTED_ROWS_MAX = 2_000_000n;
/** Of text that goes into one file. */
const BATCH_ROWS_MAX = 4_000_000n;
const BATCH_SEGMENTS_MAX = 2_000;

export interface EntriesPlan {
  /** Each becomes a file. */
  readonly append: readonly (readonly SegmentMonth[])[];
  /** Files of which only some segments stay. */
  readonly rewrite: readonly { readonly file: EntriesFile; readonly keep: readonly SegmentMonth[] }[];
  /** Paths of files that stay as they are. */
  readonly stay: ReadonlySet<string>;
}

export function planEntries(wanted: readonly SegmentMonth[], files: readonly EntriesFile[]): EntriesPlan {
  const missing = new Map(wanted.map((segment) => [`${segment.month}/${segment.segmentId}`, segment]));
  const rewrite: { file: EntriesFile; keep: SegmentMonth[] }[] = [];
  const stay = new Set<string>();
  for (const file of files) {
    const names = [...file.segments].map((id) => `${file.month}/${id}`);
    const keep = names.flatMap((name) => missing.get(name) ?? []);
    for (const name of names) missing.delete(name);
    if (keep.length === 0) continue;
    if (keep.length === names.length) stay.add(file.add.path);
    else rewrite.push({ file, keep });
  }
  const fresh = Map.groupBy(missing.values(), ({ month, isOpen }) => `${month} ${isOpen}`);
  const append = [...fresh.values()].flatMap((segments) =>
    cutByRows(segments, BATCH_ROWS_MAX, BATCH_SEGMENTS_MAX),
  );
  return { append, rewrite, stay };
}

/** Groups of small closed files of one month, each to become one file. */
export function planCompaction(files: readonly EntriesFile[]): readonly (readonly EntriesFile[])[] {
  const small = files.filter(({ isOpen, rows }) => !isOpen && rows < SMALL_ROWS);
  const months = [...Map.groupBy(small, ({ month }) => month).values()];
  return months
    .filter((ofMonth) => ofMonth.length > SMALL_FILES_MAX)
    .flatMap((ofMonth) => {
      const smallestFirst = ofMonth.toSorted((a, b) => Number(a.rows - b.rows));
      return cutByRows(smallestFirst, COMPACTED_ROWS_MAX);
    })
    .filter((group) => group.length > 1);
}

/** In their order, each group as long as it holds no more; what is larger stands alone. */
function cutByRows<Part extends { readonly rows: bigint }>(
  parts: readonly Part[],
  rowsMax: bigint,
  partsMax = Infinity,
): readonly (readonly Part[])[] {
  const groups: Part[][] = [];
  let rows = 0n;
  for (const part of parts) {
    const group = groups.at(-1);
    rows += part.rows;
    if (group !== undefined && rows <= rowsMax && group.length < partsMax) {
      group.push(part);
      continue;
    }
    groups.push([part]);
    rows = part.rows;
  }
  return groups;
}
