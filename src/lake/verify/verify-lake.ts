/**
 * Does the lake hold what its logs say, and what was loaded: how many rows of each segment, and deep, the sums of their
 * values?
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
import type { LakeCheckOptions, LakeFindings, Problem } from '../../warehouse/ports.ts';
import { appIdOf, type LakeDeps } from '../build/build-session.ts';
import { type AddFile, type TableState, totalOfFiles } from '../delta/actions.ts';
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
import { fetchFiles, type StoredFile, storedFile } from '../local-files.ts';
import { type LakeSnapshot, SNAPSHOTS_PREFIX, readSnapshot } from '../snapshot.ts';
import type { RecordedTable, SegmentMonth } from '../store/lake-store.ts';
import { LAKE_TABLES, type LakeTable, SUMMARY_TABLES } from '../tables/columns.ts';
import { LAKE_PREFIX, rootOf } from '../tables/tables.ts';

const ATTEMPTS_MAX = 3;

type StoredLake = LakeDeps & StoreAccess;

/**
 * Reads the files of the lake, all or those whose turn it is; looks whether the others are there. A lake that lacks
 * what was loaded last is behind, which is no fault; one that is missing, another's, older than the last build, or
 * changed is.
 */
export async function verifyLake(
  deps: LakeDeps,
  options: LakeCheckOptions,
  signal: AbortSignal,
): Promise<LakeFindings> {
  const lake = { ...deps, signal };
  for (let attempt = 1; ; attempt += 1) {
    const moment = await readSnapshot(lake);
    const findings = await verifyMoment(lake, moment, options);
    // A build may have published another moment meanwhile: then there is a newer lake to look at.
    const isReplaced = (await readSnapshot(lake))?.moment !== moment?.moment;
    if (findings.problems.length > 0 && isReplaced && attempt < ATTEMPTS_MAX) continue;
    return findings;
  }
}

async function verifyMoment(
  lake: StoredLake,
  moment: LakeSnapshot | undefined,
  options: LakeCheckOptions,
) {
  const { repository, scratchDir } = lake;
  const recorded = await repository.recorded();
  const problems: Problem[] = [];
  const report: FoundLake['report'] = (code, subject, message) =>
    problems.push({ code, subject, message });
  if (moment === undefined) {
    if (recorded.length > 0)
      report('LAKE_MISSING', SNAPSHOTS_PREFIX, 'the lake that was built is gone');
    const loaded = new Set(
      (await repository.segmentMonths()).map(({ segmentId }) => segmentId),
    );
    return { files: 0, filesRead: 0, rows: 0n, problems, segmentsBehind: loaded.size };
  }
  await using engine = await openEngine(scratchDir);
  const listed = await listObjects(lake, LAKE_PREFIX);
  const found = { ...lake, ...engine, listed, moment, recorded, report };
  const live = new Map<LakeTable, readonly AddFile[]>();
  for (const table of LAKE_TABLES)
    live.set(table, [...((await checkTable(found, table))?.live.values() ?? [])]);
  const files = [...live].flatMap(([table, adds]) =>
    adds.map((add) => storedFile(table, add)),
  );
  const filesRead = await checkFiles(found, files, options.parts ?? 1);
  const { rows } = totalOfFiles([...live.values()].flat());
  const entries = live.get('ledger_entries') ?? [];
  const segmentsBehind =
    problems.length > 0 ? 0 : await compareRows(found, entries, options);
  return { files: files.length, filesRead, rows, problems, segmentsBehind };
}

/** @returns the table, where it can be read */
async function checkTable(
  found: FoundLake,
  table: LakeTable,
): Promise<TableState | undefined> {
  const { moment, recorded, report } = found;
  const root = rootOf(table);
  const last = recorded.find((known) => known.table === table);
  const named = moment.tables[table];
  if (named === undefined && last === undefined) return undefined;
  try {
    const state = await readTable(found, root, named?.version);
    if (state === undefined || named === undefined) {
      report('LAKE_TABLE_MISSING', root, 'the table that was built is gone');
      return undefined;
    }
    const { id } = state.metaData;
    const isNamed = Object.values(moment.tables).some((one) => one?.id === id);
    const build = state.txns.get(appIdOf(moment.mirrorId))?.version ?? -1;
    if (!isNamed || (last !== undefined && last.tableId !== id))
      report('LAKE_FOREIGN', root, 'it is not the table that this mirror built');
    else if (last !== undefined && build < last.build)
      report(
        'LAKE_TABLE_OLDER',
        root,
        `it is as build ${build} left it, the last one was ${last.build}`,
      );
    for (const broken of await findBrokenCheckpoints(found, root))
      report(
        'LAKE_CHECKPOINT_BROKEN',
        root,
        `${broken.state}; 'ledger-mirror lake' takes it away`,
      );
    return state;
  } catch (error) {
    if (!(error instanceof PermanentError)) throw error;
    report(errorCode(error), root, errorLine(error));
    return undefined;
  }
}

/** Reads those whose turn it is, and looks for the others among what is listed. @returns how many it read */
async function checkFiles(
  found: FoundLake,
  files: readonly StoredFile[],
  parts: number,
): Promise<number> {
  const { repository, listed, report } = found;
  const keys = files.map(({ key }) => key);
  const turn = await repository.filesToProve(keys, parts);
  const sizes = new Map(listed.map(({ key, bytes }) => [key, bytes]));
  const proven: string[] = [];
  for (const file of files) {
    const { key, bytes } = file;
    const size = sizes.get(key);
    if (turn.has(key)) proven.push(...((await isIntact(found, file)) ? [key] : []));
    else if (size === undefined)
      report('OBJECT_MISSING', key, 'a version names it, and it is not in the store');
    else if (size !== bytes)
      report('LAKE_FILE_CORRUPT', key, `it has ${size} bytes, published were ${bytes}`);
  }
  await repository.recordProofs(proven, keys);
  return turn.size;
}

async function isIntact(
  { objects, signal, report }: FoundLake,
  file: StoredFile,
): Promise<boolean> {
  const { key, bytes, sha256 } = file;
  try {
    const found = await measureStream(await objects.read(key, signal));
    if (found.bytes === bytes && (sha256 ?? found.sha256) === found.sha256) return true;
    report('LAKE_FILE_CORRUPT', key, 'its bytes are not those that were published');
  } catch (error) {
    if (!(error instanceof PermanentError)) throw error;
    report(errorCode(error), key, error.message);
  }
  return false;
}

/** The lake as it was found at a moment, and who is told of each problem. */
interface FoundLake extends LakeDeps, LakeAccess {
  readonly moment: LakeSnapshot;
  readonly recorded: readonly RecordedTable[];
  readonly report: (code: string, subject: string, message: string) => void;
}

/**
 * A whole run counts the rows of each segment in the files. Another goes by what the log says of each file, which counted
 * its rows when it was written, and reads the files of other writers only.
 * @param entries the files of `ledger_entries`
 * @returns how many segments were loaded or unloaded since the last build
 */
async function compareRows(
  found: FoundLake,
  entries: readonly AddFile[],
  options: LakeCheckOptions,
) {
  const { deep, parts = 1 } = options;
  const isWhole = parts === 1;
  const { repository, objects, scratchDir, moment, signal, report } = found;
  const loaded = await repository.segmentMonths();
  const logged = isWhole ? [] : entries.flatMap((add) => taggedFile(add) ?? []);
  const unlogged = isWhole
    ? entries
    : entries.filter((add) => taggedFile(add) === undefined);
  const read = await countBySegment(
    found,
    await fetchFiles('ledger_entries', unlogged, found),
    true,
  );
  const counted = [
    ...logged.map(({ add, segments, ...of }) => ({
      ...of,
      place: add.path,
      ids: [...segments],
    })),
    ...read.map(({ segmentId, ...of }) => ({
      ...of,
      place: `segment ${segmentId}`,
      ids: [segmentId],
    })),
  ];
  await using lake = deep ? await openLake({ objects, scratchDir }, signal) : undefined;
  // A newer one is there: what is compared would be another lake.
  if (lake !== undefined && lake.version !== moment.moment) return 0;
  const nameOf = (month: string, segmentId: bigint): string => `${month}/${segmentId}`;
  const wanted = new Map(loaded.map((one) => [nameOf(one.month, one.segmentId), one]));
  const seen = new Set<string>();
  const matched: SegmentMonth[] = [];
  const behind = new Set<bigint>();
  for (const { place, month, ids, rows } of counted) {
    const subject = `ledger_entries/month=${month}`;
    const twice = ids.filter((id) => seen.has(nameOf(month, id)));
    for (const id of ids) seen.add(nameOf(month, id));
    if (twice.length > 0)
      report(
        'LAKE_DIFFERS',
        subject,
        `rows of ${twice.join(', ')} lie in two of its files`,
      );
    const known = ids.flatMap((id) => wanted.get(nameOf(month, id)) ?? []);
    // What was unloaded since leaves with the next build.
    for (const id of ids) if (!wanted.has(nameOf(month, id))) behind.add(id);
    const loadedRows = known.reduce((sum, segment) => sum + segment.rows, 0n);
    if (rows === loadedRows) matched.push(...known);
    else if (known.length === ids.length)
      report(
        'LAKE_DIFFERS',
        subject,
        `${rows} rows lie in ${place}, loaded were ${loadedRows}`,
      );
  }
  for (const [name, { segmentId }] of wanted) if (!seen.has(name)) behind.add(segmentId);
  if (lake === undefined) return behind.size;
  for (const [month, segments] of Map.groupBy(matched, (segment) => segment.month)) {
    await checkValues(found, lake, month, segments);
    await checkSummaries(found, lake, month);
  }
  return behind.size;
}

async function checkValues(
  found: FoundLake,
  lake: Lake,
  month: string,
  segments: readonly SegmentMonth[],
) {
  const expected = new RowDigest();
  const held = new RowDigest();
  for (const { valuesDigest, rows } of segments)
    expected.merge(RowDigest.fromHex(valuesDigest, Number(rows)));
  const ids = segments.map(({ segmentId }) => segmentId).join(', ');
  const sql = `select concat_ws(chr(31), ${ENTRY_COLUMNS.map(canonicalExpression).join(', ')}), extra
    from ledger_entries where month = ${literal(month)} and segment_id in (${ids})`;
  await interruptible(lake.connection, `sum up ${month}`, found.signal, async () => {
    const result = await lake.connection.stream(sql);
    for await (const rows of result.yieldRows()) {
      found.signal.throwIfAborted();
      for (const [text, extra] of rows) {
        const known = typeof extra === 'string' ? extraFromJson(extra) : [];
        held.add(hashText(canonicalText([String(text)], known)));
      }
    }
    requireWhole(result);
  });
  if (held.hex() === expected.hex()) return;
  const message = `its rows sum up to ${held.hex()}, loaded were ${expected.hex()}`;
  found.report('LAKE_VALUES_DIFFER', `ledger_entries/month=${month}`, message);
}

async function checkSummaries(
  { signal, report }: FoundLake,
  lake: Lake,
  month: string,
): Promise<void> {
  for (const table of SUMMARY_TABLES) {
    const subject = `${table}/month=${month}`;
    const sql = summaryDifference(table, month);
    const [[rows] = []] = await queryRows({ ...lake, signal }, `check ${subject}`, sql);
    const message = `${String(rows)} of its rows are not what its entries sum up to`;
    if (rows !== 0n) report('LAKE_SUMMARY_DIFFERS', subject, message);
  }
}

function canonicalExpression(column: (typeof ENTRY_COLUMNS)[number]): string {
  if (column === 'vega_time')
    return `strftime(vega_time at time zone 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')`;
  return isAmountColumn(column)
    ? `coalesce(cast(${column} as varchar), ${column}_text, '')`
    : `coalesce(${column}, '')`;
}
