/** Does the lake hold what its logs say, and what was loaded? */
import { errorCode, errorLine, PermanentError } from '../../core/errors.ts';
import { measure } from '../../core/byte-sums.ts';
import type { ListedObject } from '../../objects/object-store.ts';
import type { LakeCheckOptions, LakeFindings, Problem } from '../../load/ports.ts';
import { appIdOf, type LakeDeps } from '../build/workshop.ts';
import { type AddFile, type TableState, totalOfFiles } from '../delta/actions.ts';
import { findBrokenCheckpoints } from '../delta/checkpoint.ts';
import { listObjects, logAmong } from '../delta/listing.ts';
import { readTable } from '../delta/log.ts';
import { type LakeAccess, openEngine } from '../local/duckdb.ts';
import { type StoredFile, storedFile } from '../local-files.ts';
import { type Moment, MOMENTS_PREFIX, readMoment } from '../moment.ts';
import type { RecordedTable } from '../store/lake-store.ts';
import { LAKE_TABLES, type LakeTable } from '../tables/columns.ts';
import { LAKE_PREFIX, rootOf } from '../tables/tables.ts';
import { compareWithWarehouse, type Report } from './verify-values.ts';

const ATTEMPTS_MAX = 3;

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
  for (let attempt = 1; ; attempt += 1) {
    const moment = await readMoment(deps.objects, signal);
    const findings = await verifyMoment(deps, moment, options, signal);
    // A build may have published another moment meanwhile: then there is a newer lake to look at.
    const isReplaced = (await readMoment(deps.objects, signal))?.moment !== moment?.moment;
    if (findings.problems.length > 0 && isReplaced && attempt < ATTEMPTS_MAX) continue;
    return findings;
  }
}

async function verifyMoment(
  deps: LakeDeps,
  moment: Moment | undefined,
  { deep, parts = 1 }: LakeCheckOptions,
  signal: AbortSignal,
): Promise<LakeFindings> {
  const { repository, objects } = deps;
  const recorded = await repository.recorded();
  const problems: Problem[] = [];
  const report: Report = (code, subject, message) => problems.push({ code, subject, message });
  if (moment === undefined) {
    if (recorded.length > 0) report('LAKE_MISSING', MOMENTS_PREFIX, 'the lake that was built is gone');
    const loaded = new Set((await repository.segmentMonths()).map(({ segmentId }) => segmentId));
    return { files: 0, filesRead: 0, rows: 0n, problems, segmentsBehind: loaded.size };
  }
  await using engine = await openEngine(deps.scratchDir);
  const listed = await listObjects(objects, LAKE_PREFIX, signal);
  const found = { ...engine, objects, signal, listed, moment, recorded };
  const live = new Map<LakeTable, readonly AddFile[]>();
  for (const table of LAKE_TABLES) {
    const state = await checkTable(found, table, report);
    live.set(table, [...(state?.live.values() ?? [])]);
  }
  const files = [...live].flatMap(([table, adds]) => adds.map((add) => storedFile(table, add)));
  const keys = files.map(({ key }) => key);
  const turn = await repository.filesToProve(keys, parts);
  const proven: string[] = [];
  const sizes = new Map(listed.map(({ key, bytes }) => [key, bytes]));
  for (const file of files) {
    if (!turn.has(file.key)) checkSize(file, sizes.get(file.key), report);
    else if (await isIntact(found, file, report)) proven.push(file.key);
  }
  await repository.noteProven(proven, keys);
  const { rows } = totalOfFiles([...live.values()].flat());
  const entries = live.get('ledger_entries') ?? [];
  const segmentsBehind =
    problems.length > 0
      ? 0
      : await compareWithWarehouse(deps, found, { moment, entries, isWhole: parts === 1, deep }, report);
  return { files: files.length, filesRead: turn.size, rows, problems, segmentsBehind };
}

function checkSize({ key, bytes }: StoredFile, listed: bigint | undefined, report: Report): void {
  if (listed === undefined) report('OBJECT_MISSING', key, 'a version names it, and it is not in the store');
  else if (listed !== bytes)
    report('LAKE_FILE_CORRUPT', key, `it has ${listed} bytes, published were ${bytes}`);
}

/** The lake as it was found. */
interface FoundLake extends LakeAccess {
  readonly moment: Moment;
  readonly recorded: readonly RecordedTable[];
  readonly listed: readonly ListedObject[];
}

/** @returns the table, where it can be read */
async function checkTable(
  found: FoundLake,
  table: LakeTable,
  report: Report,
): Promise<TableState | undefined> {
  const { moment, recorded, listed } = found;
  const root = rootOf(table);
  const last = recorded.find((known) => known.table === table);
  const named = moment.tables[table];
  if (named === undefined && last === undefined) return undefined;
  try {
    const log = logAmong(root, listed);
    const state = await readTable(found, log, named?.version);
    if (state === undefined || named === undefined) {
      report('LAKE_TABLE_MISSING', root, 'the table that was built is gone');
      return undefined;
    }
    checkIdentity(root, state, moment, last, report);
    for (const broken of await findBrokenCheckpoints(found, log))
      report('LAKE_CHECKPOINT_BROKEN', root, `${broken.state}; 'ledger-mirror lake' takes it away`);
    return state;
  } catch (error) {
    if (!(error instanceof PermanentError)) throw error;
    report(errorCode(error), root, errorLine(error));
    return undefined;
  }
}

function checkIdentity(
  root: string,
  { metaData, txns }: TableState,
  { tables, mirrorId }: Moment,
  last: RecordedTable | undefined,
  report: Report,
): void {
  const isNamed = Object.values(tables).some((named) => named?.id === metaData.id);
  const build = txns.get(appIdOf(mirrorId))?.version ?? -1;
  if (!isNamed || (last !== undefined && last.tableId !== metaData.id))
    report('LAKE_FOREIGN', root, 'it is not the table that this mirror built');
  else if (last !== undefined && build < last.build)
    report('LAKE_TABLE_OLDER', root, `it is as build ${build} left it, the last one was ${last.build}`);
}

async function isIntact(
  { objects, signal }: FoundLake,
  { key, bytes, sha256 }: StoredFile,
  report: Report,
): Promise<boolean> {
  try {
    const found = await measure(await objects.read(key, signal));
    if (found.bytes === bytes && (sha256 ?? found.sha256) === found.sha256) return true;
    report('LAKE_FILE_CORRUPT', key, 'its bytes are not those that were published');
  } catch (error) {
    if (!(error instanceof PermanentError)) throw error;
    report(errorCode(error), key, error.message);
  }
  return false;
}
