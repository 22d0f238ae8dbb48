/**
 * What must change in `ledger_entries`. Rows never change once they are written: segments that are new are
 * appended, and a file is written again only where segments in it are gone. Open segments lie in files of
 * their own, as each is gone soon; so files of closed ones stay as they are.
 */
import type { AddFile } from '../delta/actions.ts';
import type { SegmentMonth } from '../store/warehouse-snapshot.ts';
import { parseIds } from './segment-ids.ts';

/** Closed files below so many rows are small. */
export const SMALL_ROWS = 250_000n;
/** So many small closed files a month are left alone. */
export const SMALL_FILES_MAX = 12;
/** Of the files that a compaction puts together. */
const COMPACTED_ROWS_MAX = 2_000_000n;
/** Of text that goes into one file. */
const BATCH_ROWS_MAX = 4_000_000n;
const BATCH_SEGMENTS_MAX = 2_000;

export interface EntriesFile {
  readonly add: AddFile;
  readonly month: string;
  readonly rows: bigint;
  readonly isOpen: boolean;
  /** Those of which rows lie in the file: all rows of the segment and month do. */
  readonly segments: ReadonlySet<bigint>;
}

export interface Rewrite {
  readonly file: EntriesFile;
  /** Those that stay. */
  readonly keep: readonly SegmentMonth[];
}

export interface MonthPlan {
  readonly month: string;
  /** Each becomes a file. */
  readonly append: readonly (readonly SegmentMonth[])[];
  readonly rewrite: readonly Rewrite[];
  /** All of their segments are gone. */
  readonly drop: readonly EntriesFile[];
}

/** Months where nothing changes are left out. */
export function planEntries(
  wanted: readonly SegmentMonth[],
  files: readonly EntriesFile[],
): readonly MonthPlan[] {
  const wantedByMonth = Map.groupBy(wanted, ({ month }) => month);
  const filesByMonth = Map.groupBy(files, ({ month }) => month);
  const months = [...new Set([...wantedByMonth.keys(), ...filesByMonth.keys()])].toSorted();
  return months.flatMap((month) => {
    const plan = planMonth(month, wantedByMonth.get(month) ?? [], filesByMonth.get(month) ?? []);
    return plan.append.length + plan.rewrite.length + plan.drop.length === 0 ? [] : [plan];
  });
}

function planMonth(month: string, wanted: readonly SegmentMonth[], files: readonly EntriesFile[]): MonthPlan {
  const byId = new Map(wanted.map((segment) => [segment.segmentId, segment]));
  const held = new Set<bigint>();
  const rewrite: Rewrite[] = [];
  const drop: EntriesFile[] = [];
  for (const file of files) {
    const keep = [...file.segments].flatMap((id) => {
      const segment = held.has(id) ? undefined : byId.get(id);
      return segment === undefined ? [] : [segment];
    });
    for (const { segmentId } of keep) held.add(segmentId);
    if (keep.length === 0) drop.push(file);
    else if (keep.length < file.segments.size) rewrite.push({ file, keep });
  }
  const fresh = wanted.filter(({ segmentId }) => !held.has(segmentId));
  const [open, closed] = [fresh.filter(({ isOpen }) => isOpen), fresh.filter(({ isOpen }) => !isOpen)];
  return { month, append: [...batches(closed), ...batches(open)], rewrite, drop };
}

function* batches(segments: readonly SegmentMonth[]): Generator<readonly SegmentMonth[]> {
  let batch: SegmentMonth[] = [];
  let rows = 0n;
  for (const segment of segments) {
    const isFull = rows + segment.rows > BATCH_ROWS_MAX || batch.length >= BATCH_SEGMENTS_MAX;
    if (batch.length > 0 && isFull) {
      yield batch;
      [batch, rows] = [[], 0n];
    }
    batch.push(segment);
    rows += segment.rows;
  }
  if (batch.length > 0) yield batch;
}

/** Groups of small closed files of one month, each to become one file. */
export function planCompaction(files: readonly EntriesFile[]): readonly (readonly EntriesFile[])[] {
  const small = files.filter(({ isOpen, rows }) => !isOpen && rows < SMALL_ROWS);
  const groups: EntriesFile[][] = [];
  for (const ofMonth of Map.groupBy(small, ({ month }) => month).values()) {
    if (ofMonth.length <= SMALL_FILES_MAX) continue;
    let group: EntriesFile[] = [];
    let rows = 0n;
    for (const file of ofMonth.toSorted((a, b) => (a.rows < b.rows ? -1 : 1))) {
      if (rows + file.rows > COMPACTED_ROWS_MAX) {
        groups.push(group);
        [group, rows] = [[], 0n];
      }
      group.push(file);
      rows += file.rows;
    }
    groups.push(group);
  }
  return groups.filter((group) => group.length > 1);
}

export const SEGMENTS_TAG = 'segments';
export const OPEN_TAG = 'open';

/** What the log says of a file; undefined where another writer made it, and it has to be looked into. */
export function taggedFile(add: AddFile): EntriesFile | undefined {
  const month = add.partitionValues['month'];
  const segments = parseIds(add.tags?.[SEGMENTS_TAG] ?? '');
  const rows = rowsOfFile(add);
  if (!month || segments === undefined || rows === undefined) return undefined;
  return { add, month, rows, isOpen: add.tags?.[OPEN_TAG] === 'true', segments };
}

export function rowsOfFile({ stats }: AddFile): bigint | undefined {
  const match = /"numRecords":\s*(\d{1,18})\b/.exec(stats ?? '');
  return match?.[1] === undefined ? undefined : BigInt(match[1]);
}
