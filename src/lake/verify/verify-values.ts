/** The rows of the lake beside what was loaded: how many of each segment, and deep, the sums of their values. */
import { canonicalText, ENTRY_COLUMNS, extraFromJson, isAmountColumn } from '../../ledger/canonical.ts';
import { hashText, RowDigest } from '../../ledger/digest.ts';
import type { AddFile } from '../delta/actions.ts';
import type { LakeDeps } from '../build/workshop.ts';
import { countBySegment, taggedFile } from '../build/entries-file.ts';
import { interruptible, type LakeAccess, queryRows } from '../local/duckdb.ts';
import { literal } from '../local/sql.ts';
import { bringFiles } from '../local-files.ts';
import type { Moment } from '../moment.ts';
import { type Lake, openLake } from '../query/lake.ts';
import type { RecordedTable } from '../store/lake-store.ts';
import type { SegmentMonth } from '../store/warehouse-reader.ts';
import { SUMMARY_TABLES, summaryDifference } from '../tables/summaries.ts';

/** The lake as it was found at a moment, and who is told of each problem. */
export interface FoundLake extends LakeDeps, LakeAccess {
  readonly moment: Moment;
  readonly recorded: readonly RecordedTable[];
  readonly report: (code: string, subject: string, message: string) => void;
}

/** Rows that were counted together: those of a file, or of one segment. */
interface CountedRows {
  readonly place: string;
  readonly month: string;
  readonly segments: Iterable<bigint>;
  readonly rows: bigint;
}

/**
 * A whole run counts the rows of each segment in the files. Another goes by what the log says of each file, which counted
 * its rows when it was written, and reads the files of other writers only.
 * @param entries the files of `ledger_entries`
 * @returns how many segments were loaded or unloaded since the last build
 */
export async function compareWithWarehouse(
  found: FoundLake,
  entries: readonly AddFile[],
  { deep, isWhole }: { readonly deep: boolean; readonly isWhole: boolean },
): Promise<number> {
  const { repository, objects, scratchDir, moment, signal } = found;
  const loaded = await repository.segmentMonths();
  const logged = isWhole ? [] : entries.flatMap((add) => taggedFile(add) ?? []);
  const read = isWhole ? entries : entries.filter((add) => taggedFile(add) === undefined);
  const counted = await countBySegment(found, await bringFiles('ledger_entries', read, found), true);
  const { behind, matched } = compare(found, loaded, [
    ...logged.map((file) => ({ ...file, place: file.add.path })),
    ...counted.map((of) => ({ ...of, place: `segment ${of.segmentId}`, segments: [of.segmentId] })),
  ]);
  if (!deep) return behind;
  await using lake = await openLake({ objects, scratchDir }, signal);
  // A newer one is there: what is compared would be another lake.
  if (lake.version !== moment.moment) return 0;
  for (const [month, segments] of Map.groupBy(matched, (segment) => segment.month)) {
    await checkValues(found, lake, month, segments);
    await checkSummaries(found, lake, month);
  }
  return behind;
}

/** @returns how many segments were loaded or unloaded since, and those of which the right number of rows is there */
function compare({ report }: FoundLake, loaded: readonly SegmentMonth[], counted: readonly CountedRows[]) {
  const nameOf = (month: string, segmentId: bigint): string => `${month}/${segmentId}`;
  const wanted = new Map(loaded.map((one) => [nameOf(one.month, one.segmentId), one]));
  const seen = new Set<string>();
  const matched: SegmentMonth[] = [];
  const behind = new Set<bigint>();
  for (const { place, month, segments, rows } of counted) {
    const subject = `ledger_entries/month=${month}`;
    const ids = [...segments];
    const twice = ids.filter((id) => seen.has(nameOf(month, id)));
    for (const id of ids) seen.add(nameOf(month, id));
    if (twice.length > 0)
      report('LAKE_DIFFERS', subject, `rows of ${twice.join(', ')} lie in two of its files`);
    const known = ids.flatMap((id) => wanted.get(nameOf(month, id)) ?? []);
    // What was unloaded since leaves with the next build.
    for (const id of ids) if (!wanted.has(nameOf(month, id))) behind.add(id);
    const loadedRows = known.reduce((sum, segment) => sum + segment.rows, 0n);
    if (rows === loadedRows) matched.push(...known);
    else if (known.length === ids.length)
      report('LAKE_DIFFERS', subject, `${rows} rows lie in ${place}, loaded were ${loadedRows}`);
  }
  for (const [name, { segmentId }] of wanted) if (!seen.has(name)) behind.add(segmentId);
  return { behind: behind.size, matched };
}

async function checkValues(
  { signal, report }: FoundLake,
  { connection }: Lake,
  month: string,
  segments: readonly SegmentMonth[],
): Promise<void> {
  const [expected, found] = [new RowDigest(), new RowDigest()];
  for (const { valuesDigest, rows } of segments)
    expected.merge(RowDigest.fromHex(valuesDigest, Number(rows)));
  const ids = segments.map(({ segmentId }) => segmentId).join(', ');
  const sql = `select concat_ws(chr(31), ${ENTRY_COLUMNS.map(canonicalExpression).join(', ')}), extra
    from ledger_entries where month = ${literal(month)} and segment_id in (${ids})`;
  await interruptible(connection, `sum up ${month}`, signal, async () => {
    for await (const rows of (await connection.stream(sql)).yieldRows()) {
      signal.throwIfAborted();
      for (const [text, extra] of rows) {
        const known = typeof extra === 'string' ? extraFromJson(extra) : [];
        found.add(hashText(canonicalText([String(text)], known)));
      }
    }
  });
  if (found.hex() === expected.hex()) return;
  const message = `its rows sum up to ${found.hex()}, loaded were ${expected.hex()}`;
  report('LAKE_VALUES_DIFFER', `ledger_entries/month=${month}`, message);
}

async function checkSummaries({ signal, report }: FoundLake, lake: Lake, month: string): Promise<void> {
  for (const table of SUMMARY_TABLES) {
    const subject = `${table}/month=${month}`;
    const sql = summaryDifference(table, month);
    const [[rows] = []] = await queryRows({ ...lake, signal }, `check ${subject}`, sql);
    const message = `${String(rows)} of its rows are not what its entries sum up to`;
    if (rows !== 0n) report('LAKE_SUMMARY_DIFFERS', subject, message);
  }
}

function canonicalExpression(column: (typeof ENTRY_COLUMNS)[number]): string {
  if (column === 'vega_time') return `strftime(vega_time at time zone 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')`;
  return isAmountColumn(column)
    ? `coalesce(cast(${column} as varchar), ${column}_text, '')`
    : `coalesce(${column}, '')`;
}
