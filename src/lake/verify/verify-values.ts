/** The rows of the lake beside what was loaded: how many of each segment, and deep, the sums of their values. */
import { canonicalText, ENTRY_COLUMNS, extraFromJson, isAmountColumn } from '../../ledger/canonical.ts';
import { hashText, RowDigest } from '../../ledger/digest.ts';
import type { LakeFindings, Problem } from '../../load/ports.ts';
import type { LakeDeps } from '../build/workshop.ts';
import type { LakeTable } from '../tables/columns.ts';
import type { TableState } from '../delta/actions.ts';
import { interruptible } from '../local/duckdb.ts';
import { taggedFile } from '../build/entries-plan.ts';
import { type Lake, openLake } from '../query/lake.ts';
import type { Moment } from '../moment.ts';
import type { SegmentMonth } from '../store/warehouse-snapshot.ts';
import { literal } from '../local/sql.ts';
import { SUMMARY_TABLES, summaryDifference } from '../tables/summaries.ts';

const VALUE_SEPARATOR = '\u001f';

type Comparison = Pick<LakeFindings, 'problems' | 'segmentsBehind'>;

/**
 * By what the log says of its files, without reading them: what was written into each was counted then.
 * @returns undefined where another writer made a file, which says nothing of its segments
 */
export async function compareByTags(
  { repository }: LakeDeps,
  states: ReadonlyMap<LakeTable, TableState>,
  signal: AbortSignal,
): Promise<Comparison | undefined> {
  const loaded = await repository.snapshot((snapshot) => snapshot.segmentMonths(signal), signal);
  const wanted = new Map(
    loaded.map((segment) => [nameOf(segment.month, segment.segmentId), segment] as const),
  );
  const problems: Problem[] = [];
  const behind = new Set<string>();
  const held = new Set<string>();
  for (const add of states.get('ledger_entries')?.live.values() ?? []) {
    const file = taggedFile(add);
    if (file === undefined) return undefined;
    const names = [...file.segments].map((id) => nameOf(file.month, id));
    const segments = names.flatMap((name) => wanted.get(name) ?? []);
    const twice = names.filter((name) => held.has(name));
    for (const name of names) held.add(name);
    const subject = `ledger_entries/month=${file.month}`;
    if (twice.length > 0)
      problems.push(problem('LAKE_DIFFERS', subject, `rows of ${twice.join(', ')} lie in two of its files`));
    // What was unloaded since leaves with the next build.
    for (const name of names.filter((one) => !wanted.has(one))) behind.add(name.split('/')[1] ?? '');
    const rows = segments.reduce((sum, segment) => sum + segment.rows, 0n);
    if (segments.length < names.length || rows === file.rows) continue;
    const message = `${file.rows} rows are in ${add.path}, loaded were ${rows}`;
    problems.push(problem('LAKE_DIFFERS', subject, message));
  }
  for (const [name, { segmentId }] of wanted) if (!held.has(name)) behind.add(String(segmentId));
  return { problems, segmentsBehind: behind.size };
}

export async function compareWithWarehouse(
  deps: LakeDeps,
  moment: Moment,
  deep: boolean,
  signal: AbortSignal,
): Promise<Comparison> {
  const { objects, scratchDir, repository } = deps;
  await using lake = await openLake({ objects, scratchDir }, signal);
  // A newer one is there: what is compared would be another lake.
  if (lake.version !== moment.moment) return { problems: [], segmentsBehind: 0 };
  const loaded = await repository.snapshot((snapshot) => snapshot.segmentMonths(signal), signal);
  const held = await countBySegment(lake, signal);
  const problems: Problem[] = [];
  const behind = new Set<string>();
  const both: SegmentMonth[] = [];
  for (const segment of loaded) {
    const name = nameOf(segment.month, segment.segmentId);
    const rows = held.get(name);
    held.delete(name);
    if (rows === undefined) behind.add(String(segment.segmentId));
    else if (rows === segment.rows) both.push(segment);
    else {
      const message = `${rows} rows of segment ${segment.segmentId} are there, loaded were ${segment.rows}`;
      problems.push(problem('LAKE_DIFFERS', `ledger_entries/month=${segment.month}`, message));
    }
  }
  // What was unloaded since leaves with the next build.
  for (const name of held.keys()) behind.add(name.split('/')[1] ?? '');
  if (deep) problems.push(...(await checkValues(lake, both, signal)));
  return { problems, segmentsBehind: behind.size };
}

function nameOf(month: string, segmentId: bigint): string {
  return `${month}/${segmentId}`;
}

async function countBySegment(lake: Lake, signal: AbortSignal): Promise<Map<string, bigint>> {
  const result = await interruptible(lake.connection, 'count the rows of segments', signal, () =>
    lake.connection.runAndReadAll('select month, segment_id, count(*) from ledger_entries group by 1, 2'),
  );
  return new Map(
    result
      .getRows()
      .map(([month, id, rows]) => [`${String(month)}/${String(id)}`, BigInt(String(rows))] as const),
  );
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
    const result = await interruptible(lake.connection, `check ${subject}`, signal, () =>
      lake.connection.runAndReadAll(summaryDifference(table, month)),
    );
    const rows = result.getRows()[0]?.[0];
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
    const result = await lake.connection.stream(sql);
    for (;;) {
      const chunk = await result.fetchChunk();
      if (chunk === null || chunk.rowCount === 0) return;
      signal.throwIfAborted();
      const texts = chunk.getColumnValues(0);
      const extras = chunk.getColumnValues(1);
      for (const [row, text] of texts.entries()) sum.add(hashText(withExtra(String(text), extras[row])));
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

function withExtra(text: string, extra: unknown): string {
  if (typeof extra !== 'string') return text;
  return canonicalText(text.split(VALUE_SEPARATOR), extraFromJson(extra));
}

export function problem(code: string, subject: string, message: string): Problem {
  return { code, subject, message };
}
