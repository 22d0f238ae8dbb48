/** The rows of the lake beside what was loaded: how many of each segment, and deep, the sums of their values. */
import { canonicalText, ENTRY_COLUMNS, extraFromJson, isAmountColumn } from '../../ledger/canonical.ts';
import { hashText, RowDigest } from '../../ledger/digest.ts';
import type { LakeFindings, Problem } from '../../load/ports.ts';
import type { AddFile } from '../delta/actions.ts';
import type { LakeDeps } from '../build/workshop.ts';
import { taggedFile } from '../build/entries-file.ts';
import { interruptible, type LakeAccess, queryRows } from '../local/duckdb.ts';
import { literal } from '../local/sql.ts';
import { bringFiles, storedFile } from '../local-files.ts';
import type { Moment } from '../moment.ts';
import { type Lake, openLake } from '../query/lake.ts';
import type { SegmentMonth } from '../store/warehouse-reader.ts';
import { SUMMARY_TABLES, summaryDifference } from '../tables/summaries.ts';
import { rowsOf } from '../tables/tables.ts';

type Comparison = Pick<LakeFindings, 'problems' | 'segmentsBehind'>;

/** Rows that were counted together: those of a file, or of one segment. */
interface CountedRows {
  readonly place: string;
  readonly month: string;
  readonly segments: Iterable<bigint>;
  readonly rows: bigint;
}

/**
 * Goes by what the log says of each file, which counted its rows when it was written; the files of other writers are read.
 * @param entries the files of `ledger_entries`
 */
export async function compareWithWarehouse(
  deps: LakeDeps,
  access: LakeAccess,
  { moment, entries, deep }: { moment: Moment; entries: readonly AddFile[]; deep: boolean },
): Promise<Comparison> {
  const { repository, objects, scratchDir } = deps;
  const { signal } = access;
  const loaded = await repository.segmentMonths();
  const tagged = entries.flatMap((add) => taggedFile(add) ?? []);
  const foreign = entries.filter((add) => taggedFile(add) === undefined);
  const paths = await bringFiles(
    foreign.map((add) => storedFile('ledger_entries', add)),
    { ...access, scratchDir },
  );
  const { matched, ...compared } = compare(loaded, [
    ...tagged.map((file) => ({ ...file, place: file.add.path })),
    ...(await countBySegment(access, paths)),
  ]);
  if (!deep) return compared;
  await using lake = await openLake({ objects, scratchDir }, signal);
  // A newer one is there: what is compared would be another lake.
  if (lake.version !== moment.moment) return { problems: [], segmentsBehind: 0 };
  return { ...compared, problems: [...compared.problems, ...(await checkValues(lake, matched, signal))] };
}

async function countBySegment(access: LakeAccess, paths: readonly string[]): Promise<readonly CountedRows[]> {
  const sql = `select month, segment_id, count(*) from ${rowsOf('ledger_entries', paths, true)} group by 1, 2`;
  const counts = await queryRows(access, 'count the rows of segments', sql);
  return (counts as readonly [string, bigint, bigint][]).map(([month, id, rows]) => ({
    place: `segment ${id}`,
    month,
    segments: [id],
    rows,
  }));
}

function compare(
  loaded: readonly SegmentMonth[],
  counted: readonly CountedRows[],
): Comparison & { readonly matched: readonly SegmentMonth[] } {
  const nameOf = (month: string, segmentId: bigint): string => `${month}/${segmentId}`;
  const wanted = new Map(loaded.map((one) => [nameOf(one.month, one.segmentId), one]));
  const seen = new Set<string>();
  const problems: Problem[] = [];
  const matched: SegmentMonth[] = [];
  const behind = new Set<bigint>();
  for (const { place, month, segments, rows } of counted) {
    const subject = `ledger_entries/month=${month}`;
    const ids = [...segments];
    const twice = ids.filter((id) => seen.has(nameOf(month, id)));
    for (const id of ids) seen.add(nameOf(month, id));
    if (twice.length > 0)
      problems.push(problem('LAKE_DIFFERS', subject, `rows of ${twice.join(', ')} lie in two of its files`));
    const known = ids.flatMap((id) => wanted.get(nameOf(month, id)) ?? []);
    // What was unloaded since leaves with the next build.
    for (const id of ids) if (!wanted.has(nameOf(month, id))) behind.add(id);
    const loadedRows = known.reduce((sum, segment) => sum + segment.rows, 0n);
    if (rows === loadedRows) matched.push(...known);
    else if (known.length === ids.length)
      problems.push(
        problem('LAKE_DIFFERS', subject, `${rows} rows lie in ${place}, loaded were ${loadedRows}`),
      );
  }
  for (const [name, { segmentId }] of wanted) if (!seen.has(name)) behind.add(segmentId);
  return { problems, segmentsBehind: behind.size, matched };
}

async function checkValues(
  lake: Lake,
  segments: readonly SegmentMonth[],
  signal: AbortSignal,
): Promise<readonly Problem[]> {
  const problems: Problem[] = [];
  for (const [month, ofMonth] of Map.groupBy(segments, (segment) => segment.month)) {
    const expected = new RowDigest();
    for (const { valuesDigest, rows } of ofMonth)
      expected.merge(RowDigest.fromHex(valuesDigest, Number(rows)));
    const ids = ofMonth.map(({ segmentId }) => segmentId).join(', ');
    const found = await sumOfMonth(lake, month, ids, signal);
    if (found.hex() !== expected.hex()) {
      const message = `its rows sum up to ${found.hex()}, loaded were ${expected.hex()}`;
      problems.push(problem('LAKE_VALUES_DIFFER', `ledger_entries/month=${month}`, message));
    }
    problems.push(...(await checkSummaries(lake, month, signal)));
  }
  return problems;
}

async function checkSummaries(lake: Lake, month: string, signal: AbortSignal): Promise<readonly Problem[]> {
  const problems: Problem[] = [];
  for (const table of SUMMARY_TABLES) {
    const subject = `${table}/month=${month}`;
    const found = await queryRows({ ...lake, signal }, `check ${subject}`, summaryDifference(table, month));
    const rows = found[0]?.[0];
    if (rows === 0n) continue;
    const message = `${String(rows)} of its rows are not what its entries sum up to`;
    problems.push(problem('LAKE_SUMMARY_DIFFERS', subject, message));
  }
  return problems;
}

async function sumOfMonth(lake: Lake, month: string, ids: string, signal: AbortSignal): Promise<RowDigest> {
  const sum = new RowDigest();
  const sql = `select concat_ws(chr(31), ${ENTRY_COLUMNS.map(canonicalExpression).join(', ')}), extra
    from ledger_entries where month = ${literal(month)} and segment_id in (${ids})`;
  await interruptible(lake.connection, `sum up ${month}`, signal, async () => {
    for await (const rows of (await lake.connection.stream(sql)).yieldRows()) {
      signal.throwIfAborted();
      for (const [text, extra] of rows) {
        const known = typeof extra === 'string' ? extraFromJson(extra) : [];
        sum.add(hashText(canonicalText([String(text)], known)));
      }
    }
  });
  return sum;
}

function canonicalExpression(column: (typeof ENTRY_COLUMNS)[number]): string {
  if (column === 'vega_time') return `strftime(vega_time at time zone 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')`;
  return isAmountColumn(column)
    ? `coalesce(cast(${column} as varchar), ${column}_text, '')`
    : `coalesce(${column}, '')`;
}

export function problem(code: string, subject: string, message: string): Problem {
  return { code, subject, message };
}
