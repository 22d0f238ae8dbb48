/**
 * Checks that the lake's files match its logs, and that its rows match the loaded rows.
 * It compares the row count of each segment; a deep check also compares the digests of
 * the values.
 */
import {
  canonicalText,
  ENTRY_COLUMNS,
  extraFromJson,
  isAmountColumn,
} from '../../ledger/canonical.ts';
import { hashText, RowDigest } from '../../ledger/digest.ts';
import { countBySegment, taggedFile } from '../build/build-entries.ts';
import { type Lake, openLake } from '../query/lake.ts';
import { summaryDifference } from '../tables/summaries.ts';
import { errorCode, errorLine, PermanentError } from '../../errors/errors.ts';
import { measureStream } from '../../files/byte-counter.ts';
import type {
  LakeCheckOptions,
  LakeFindings,
  Problem,
} from '../../warehouse/ports.ts';
import { appIdOf, type LakeDeps } from '../build/build-session.ts';
import {
  type AddFile,
  type TableState,
  totalOfFiles,
} from '../delta/actions.ts';
import { findBrokenCheckpoints } from '../delta/checkpoint.ts';
import { listObjects } from '../delta/listing.ts';
import { readTable } from '../delta/log.ts';
import {
  interruptible,
  type LakeAccess,
  literal,
  openEngine,
  queryRows,
  requireWhole,
} from '../local/duckdb.ts';
import type { StoreAccess } from '../local/scratch.ts';
import { fetchFiles, type StoredFile, storedFile } from '../local-copies.ts';
import {
  type LakeSnapshot,
  SNAPSHOTS_PREFIX,
  readSnapshot,
} from '../snapshot.ts';
import type { RecordedTable, SegmentMonth } from '../store/lake-store.ts';
import {
  LAKE_TABLES,
  type LakeTable,
  SUMMARY_TABLES,
} from '../tables/columns.ts';
import { LAKE_PREFIX, rootOf } from '../tables/tables.ts';

const ATTEMPTS_MAX = 3;

type StoredLake = LakeDeps & StoreAccess;

/** Records one problem: a stable code, the affected object or table, and a message. */
type Report = (code: string, subject: string, message: string) => void;

/** The lake as of one snapshot, and the function that records problems. */
interface SnapshotUnderCheck extends LakeDeps, LakeAccess {
  readonly snapshot: LakeSnapshot;
  /** The tables' states after the last build, as the database recorded them. */
  readonly recorded: readonly RecordedTable[];
  readonly report: Report;
}

/**
 * Reads the lake's files, either all of them or those that are due, and checks that the
 * others exist. A lake without the most recently loaded rows is merely behind, which is
 * not a problem. It is a problem if the lake is missing, changed, older than the last
 * build, or belongs to another mirror.
 */
export async function verifyLake(
  deps: LakeDeps,
  options: LakeCheckOptions,
  signal: AbortSignal,
): Promise<LakeFindings> {
  const lake = { ...deps, signal };
  for (let attempt = 1; ; attempt += 1) {
    const snapshot = await readSnapshot(lake);
    const findings = await verifySnapshot(lake, snapshot, options);
    // A build may have published a newer snapshot in the meantime. If so, check that one
    // instead.
    const isReplaced = (await readSnapshot(lake))?.moment !== snapshot?.moment;
    if (findings.problems.length > 0 && isReplaced && attempt < ATTEMPTS_MAX)
      continue;
    return findings;
  }
}

async function verifySnapshot(
  lake: StoredLake,
  snapshot: LakeSnapshot | undefined,
  options: LakeCheckOptions,
): Promise<LakeFindings> {
  const { repository, scratchDir } = lake;
  const recorded = await repository.recorded();
  const problems: Problem[] = [];
  const report: Report = (code, subject, message) =>
    problems.push({ code, subject, message });
  if (snapshot === undefined) {
    if (recorded.length > 0)
      report(
        'LAKE_MISSING',
        SNAPSHOTS_PREFIX,
        'the lake that was built is gone',
      );
    const months = await repository.segmentMonths();
    const segments = new Set(months.map(({ segmentId }) => segmentId));
    return {
      files: 0,
      filesRead: 0,
      rows: 0n,
      problems,
      segmentsBehind: segments.size,
    };
  }
  await using engine = await openEngine(scratchDir);
  const listed = await listObjects(lake, LAKE_PREFIX);
  const check = { ...lake, ...engine, listed, snapshot, recorded, report };
  const files: StoredFile[] = [];
  const adds: AddFile[] = [];
  let entries: readonly AddFile[] = [];
  for (const table of LAKE_TABLES) {
    const live = [...((await checkTable(check, table))?.live.values() ?? [])];
    files.push(...live.map((add) => storedFile(table, add)));
    adds.push(...live);
    if (table === 'ledger_entries') entries = live;
  }
  const filesRead = await checkFiles(check, files, options.parts ?? 1);
  const { rows } = totalOfFiles(adds);
  const segmentsBehind =
    problems.length > 0 ? 0 : await compareRows(check, entries, options);
  return { files: files.length, filesRead, rows, problems, segmentsBehind };
}

/**
 * Checks one table's log.
 * @returns the table's state, if it can be read
 */
async function checkTable(
  check: SnapshotUnderCheck,
  table: LakeTable,
): Promise<TableState | undefined> {
  const { snapshot, recorded, report } = check;
  const root = rootOf(table);
  const last = recorded.find((record) => record.table === table);
  const named = snapshot.tables[table];
  if (named === undefined && last === undefined) return undefined;
  try {
    const state = await readTable(check, root, named?.version);
    if (state === undefined || named === undefined) {
      report('LAKE_TABLE_MISSING', root, 'the table that was built is gone');
      return undefined;
    }
    compareWithRecord(check, table, state, last);
    for (const broken of await findBrokenCheckpoints(check, root)) {
      const message = `${broken.state}; 'ledger-mirror lake' removes it`;
      report('LAKE_CHECKPOINT_BROKEN', root, message);
    }
    return state;
  } catch (error) {
    if (!(error instanceof PermanentError)) throw error;
    report(errorCode(error), root, errorLine(error));
    return undefined;
  }
}

/**
 * Reports a table that this mirror did not build, or that is in an older state than after
 * the last build.
 */
function compareWithRecord(
  { snapshot, report }: SnapshotUnderCheck,
  table: LakeTable,
  { metaData: { id }, txns }: TableState,
  last: RecordedTable | undefined,
): void {
  const root = rootOf(table);
  const isNamed = Object.values(snapshot.tables).some(
    (named) => named?.id === id,
  );
  const isRecorded = last === undefined || last.tableId === id;
  if (!isNamed || !isRecorded) {
    report('LAKE_FOREIGN', root, 'it is not the table that this mirror built');
    return;
  }
  const build = txns.get(appIdOf(snapshot.mirrorId))?.version ?? -1;
  if (last === undefined || build >= last.build) return;
  const message = `it is as build ${build} left it, the last one was ${last.build}`;
  report('LAKE_TABLE_OLDER', root, message);
}

/**
 * Reads the files that are due, and checks the others against the listing.
 * @returns the number of files read
 */
async function checkFiles(
  check: SnapshotUnderCheck,
  files: readonly StoredFile[],
  parts: number,
): Promise<number> {
  const { repository, listed, report } = check;
  const keys = files.map(({ key }) => key);
  const chosen = await repository.filesToProve(keys, parts);
  const sizes = new Map(listed.map(({ key, bytes }) => [key, bytes]));
  const proven: string[] = [];
  for (const file of files) {
    const { key, bytes } = file;
    const size = sizes.get(key);
    if (chosen.has(key)) {
      if (await isIntact(check, file)) proven.push(key);
    } else if (size === undefined) {
      report(
        'OBJECT_MISSING',
        key,
        'a version names it, but it is not in the store',
      );
    } else if (size !== bytes) {
      report(
        'LAKE_FILE_CORRUPT',
        key,
        `it has ${size} bytes, but ${bytes} were published`,
      );
    }
  }
  await repository.recordProofs(proven, keys);
  return chosen.size;
}

async function isIntact(
  { objects, signal, report }: SnapshotUnderCheck,
  { key, bytes, sha256 }: StoredFile,
): Promise<boolean> {
  try {
    const content = await measureStream(await objects.read(key, signal));
    const hasSameSum = sha256 === undefined || sha256 === content.sha256;
    if (content.bytes === bytes && hasSameSum) return true;
    report(
      'LAKE_FILE_CORRUPT',
      key,
      'its bytes are not those that were published',
    );
  } catch (error) {
    if (!(error instanceof PermanentError)) throw error;
    report(errorCode(error), key, error.message);
  }
  return false;
}

/** The row count of one file or segment, and the segments that the rows belong to. */
interface RowCount {
  /** The file or segment that has the rows, for messages. */
  readonly place: string;
  readonly month: string;
  readonly segmentIds: readonly bigint[];
  readonly rows: bigint;
}

/**
 * Returns the lake's row counts. A full run counts the rows in the files. Any other run
 * uses the counts that the log recorded when each file was written, and reads only files
 * from other writers, for which the log has no counts.
 */
async function countRows(
  check: SnapshotUnderCheck,
  entries: readonly AddFile[],
  isWhole: boolean,
): Promise<readonly RowCount[]> {
  const counts: RowCount[] = [];
  const unlogged: AddFile[] = [];
  for (const add of entries) {
    const tagged = isWhole ? undefined : taggedFile(add);
    if (tagged === undefined) {
      unlogged.push(add);
    } else {
      const { month, rows, segments } = tagged;
      counts.push({ place: add.path, month, segmentIds: [...segments], rows });
    }
  }
  const paths = await fetchFiles('ledger_entries', unlogged, check);
  for (const { segmentId, month, rows } of await countBySegment(
    check,
    paths,
    true,
  )) {
    const place = `segment ${segmentId}`;
    counts.push({ place, month, segmentIds: [segmentId], rows });
  }
  return counts;
}

/**
 * Compares the rows of the lake with the loaded segments.
 * @param entries the files of `ledger_entries`
 * @returns the number of segments loaded or unloaded since the last build
 */
async function compareRows(
  check: SnapshotUnderCheck,
  entries: readonly AddFile[],
  { deep: isDeep, parts = 1 }: LakeCheckOptions,
): Promise<number> {
  const { repository, objects, scratchDir, snapshot, signal } = check;
  const loaded = await repository.segmentMonths();
  const counts = await countRows(check, entries, parts === 1);
  await using lake = isDeep
    ? await openLake({ objects, scratchDir }, signal)
    : undefined;
  // If the opened lake is newer than `snapshot`, skip the comparison: it would mix two
  // versions of the lake.
  if (lake !== undefined && lake.version !== snapshot.moment) return 0;

  const { behind, matching } = matchCounts(check, counts, loaded);
  if (lake === undefined) return behind.size;
  for (const [month, segments] of Map.groupBy(
    matching,
    (segment) => segment.month,
  )) {
    await checkValues(check, lake, month, segments);
    await checkSummaries(check, lake, month);
  }
  return behind.size;
}

interface Matched {
  /** Segments that were loaded or unloaded since the last build. */
  readonly behind: ReadonlySet<bigint>;
  /** The monthly parts of segments whose row counts agree. */
  readonly matching: readonly SegmentMonth[];
}

function matchCounts(
  { report }: SnapshotUnderCheck,
  counts: readonly RowCount[],
  loaded: readonly SegmentMonth[],
): Matched {
  const nameOf = (month: string, segmentId: bigint): string =>
    `${month}/${segmentId}`;
  const expected = new Map<string, SegmentMonth>();
  for (const segment of loaded)
    expected.set(nameOf(segment.month, segment.segmentId), segment);

  const seen = new Set<string>();
  const behind = new Set<bigint>();
  const matching: SegmentMonth[] = [];
  for (const { place, month, segmentIds, rows } of counts) {
    const subject = `ledger_entries/month=${month}`;
    const twice = segmentIds.filter((id) => seen.has(nameOf(month, id)));
    if (twice.length > 0) {
      const message = `rows of ${twice.join(', ')} are in two of its files`;
      report('LAKE_DIFFERS', subject, message);
    }
    const segments: SegmentMonth[] = [];
    for (const id of segmentIds) {
      const name = nameOf(month, id);
      seen.add(name);
      const segment = expected.get(name);
      // The next build removes a segment that was unloaded since the last one.
      if (segment === undefined) behind.add(id);
      else segments.push(segment);
    }
    const loadedRows = segments.reduce(
      (sum, segment) => sum + segment.rows,
      0n,
    );
    const areAllLoaded = segments.length === segmentIds.length;
    if (rows === loadedRows) {
      matching.push(...segments);
    } else if (areAllLoaded) {
      const message = `${rows} rows are in ${place}, but ${loadedRows} were loaded`;
      report('LAKE_DIFFERS', subject, message);
    }
  }
  for (const [name, { segmentId }] of expected)
    if (!seen.has(name)) behind.add(segmentId);
  return { behind, matching };
}

async function checkValues(
  { signal, report }: SnapshotUnderCheck,
  lake: Lake,
  month: string,
  segments: readonly SegmentMonth[],
): Promise<void> {
  const expected = new RowDigest();
  for (const { valuesDigest, rows } of segments)
    expected.merge(RowDigest.fromHex(valuesDigest, Number(rows)));

  const actual = new RowDigest();
  const ids = segments.map(({ segmentId }) => segmentId).join(', ');
  const values = ENTRY_COLUMNS.map(canonicalExpression).join(', ');
  const sql = `select concat_ws(chr(31), ${values}), extra
    from ledger_entries where month = ${literal(month)} and segment_id in (${ids})`;
  await interruptible(lake.connection, `sum up ${month}`, signal, async () => {
    const result = await lake.connection.stream(sql);
    for await (const rows of result.yieldRows()) {
      signal.throwIfAborted();
      for (const [text, extra] of rows) {
        const extraValues =
          typeof extra === 'string' ? extraFromJson(extra) : [];
        actual.add(hashText(canonicalText([String(text)], extraValues)));
      }
    }
    requireWhole(result);
  });
  if (actual.hex() === expected.hex()) return;
  const message = `its rows sum to ${actual.hex()}, but those loaded summed to ${expected.hex()}`;
  report('LAKE_VALUES_DIFFER', `ledger_entries/month=${month}`, message);
}

async function checkSummaries(
  { signal, report }: SnapshotUnderCheck,
  lake: Lake,
  month: string,
): Promise<void> {
  for (const table of SUMMARY_TABLES) {
    const subject = `${table}/month=${month}`;
    const sql = summaryDifference(table, month);
    const answer = await queryRows(
      { ...lake, signal },
      `check ${subject}`,
      sql,
    );
    const rows = answer[0]?.[0];
    if (rows === 0n) continue;
    const message = `${String(rows)} of its rows are not the sums of its entries`;
    report('LAKE_SUMMARY_DIFFERS', subject, message);
  }
}

/**
 * Returns SQL for a column's canonical text, which the digest of a row is computed from.
 */
function canonicalExpression(column: (typeof ENTRY_COLUMNS)[number]): string {
  if (column === 'vega_time')
    return `strftime(vega_time at time zone 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')`;
  return isAmountColumn(column)
    ? `coalesce(cast(${column} as varchar), ${column}_text, '')`
    : `coalesce(${column}, '')`;
}
