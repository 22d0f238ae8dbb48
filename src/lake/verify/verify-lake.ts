/** Does the lake hold what its logs say, and what was loaded? */
import { errorCode, errorLine, PermanentError } from '../../core/errors.ts';
import { measure } from '../../core/file-facts.ts';
import type { ListedObject } from '../../objects/object-store.ts';
import type { LakeCheckOptions, LakeFindings, Problem } from '../../load/ports.ts';
import type { LakeDeps } from '../build/workshop.ts';
import { countRows } from '../build/build-entries.ts';
import { LAKE_TABLES, type LakeTable } from '../tables/columns.ts';
import type { TableState } from '../delta/actions.ts';
import { checkCheckpoints } from '../delta/checkpoint.ts';
import { listObjects, logAmong, type LogListing } from '../delta/listing.ts';
import { readTable } from '../delta/log.ts';
import { type Engine, openEngine } from '../local/duckdb.ts';
import { type StoredFile, storedFile } from '../local-files.ts';
import { type Moment, MOMENTS_PREFIX, readMoment } from '../moment.ts';
import type { RecordedTable } from '../store/lake-store.ts';
import { LAKE_PREFIX, rootOf } from '../tables/tables.ts';
import { appIdOf } from '../build/workshop.ts';
import { compareByTags, compareWithWarehouse, problem } from './verify-values.ts';

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
  { deep, parts }: LakeCheckOptions,
  signal: AbortSignal,
): Promise<LakeFindings> {
  const recorded = await deps.repository.recorded();
  const problems: Problem[] = [];
  if (moment === undefined) {
    if (recorded.length > 0)
      problems.push(problem('LAKE_MISSING', MOMENTS_PREFIX, 'the lake that was built is gone'));
    return { files: 0, filesRead: 0, rows: 0n, problems, segmentsBehind: await loadedSegments(deps, signal) };
  }
  await using engine = await openEngine(deps.scratchDir);
  const states = new Map<LakeTable, TableState>();
  const listed = await listObjects(deps.objects, LAKE_PREFIX, signal);
  for (const table of LAKE_TABLES) {
    const found = await checkTable(deps, table, { moment, recorded, listed, engine }, signal);
    problems.push(...found.problems);
    if (found.state !== undefined) states.set(table, found.state);
  }
  const files = [...states].flatMap(([table, { live }]) =>
    [...live.values()].map((file) => storedFile(table, file)),
  );
  const keys = files.map(({ key }) => key);
  const turn = parts === undefined ? new Set(keys) : await deps.repository.filesToProve(keys, parts);
  const proven: string[] = [];
  const sizes = new Map(listed.map(({ key, bytes }) => [key, bytes]));
  for (const file of files) {
    const found = turn.has(file.key) ? await checkFile(deps, file, signal) : checkSize(file, sizes);
    problems.push(...found);
    if (found.length === 0 && turn.has(file.key)) proven.push(file.key);
  }
  await deps.repository.noteProven(proven, keys);
  const rows = countRows([...states.values()].flatMap(({ live }) => [...live.values()]));
  const counts = { files: files.length, filesRead: turn.size, rows };
  if (problems.length > 0) return { ...counts, problems, segmentsBehind: 0 };
  const compared = parts === undefined ? undefined : await compareByTags(deps, states, signal);
  return { ...counts, ...(compared ?? (await compareWithWarehouse(deps, moment, deep, signal))) };
}

function checkSize({ key, bytes }: StoredFile, sizes: ReadonlyMap<string, bigint>): readonly Problem[] {
  const listed = sizes.get(key);
  if (listed === bytes) return [];
  return listed === undefined
    ? [problem('OBJECT_MISSING', key, 'a version names it, and it is not in the store')]
    : [problem('LAKE_FILE_CORRUPT', key, `it has ${listed} bytes, published were ${bytes}`)];
}

async function loadedSegments({ repository }: LakeDeps, signal: AbortSignal): Promise<number> {
  const months = await repository.snapshot((snapshot) => snapshot.segmentMonths(signal), signal);
  return new Set(months.map(({ segmentId }) => segmentId)).size;
}

/** The lake as it was found. */
interface FoundLake {
  readonly moment: Moment;
  readonly recorded: readonly RecordedTable[];
  readonly listed: readonly ListedObject[];
  readonly engine: Engine;
}

async function checkTable(
  deps: LakeDeps,
  table: LakeTable,
  { moment, recorded, listed, engine }: FoundLake,
  signal: AbortSignal,
): Promise<{ readonly state?: TableState; readonly problems: readonly Problem[] }> {
  const root = rootOf(table);
  const last = recorded.find((known) => known.table === table);
  const named = moment.tables[table];
  if (named === undefined && last === undefined) return { problems: [] };
  try {
    const log = logAmong(root, listed);
    const state = await readTable(deps.objects, log, engine, signal, named?.version);
    if (state === undefined || named === undefined)
      return { problems: [problem('LAKE_TABLE_MISSING', root, 'the table that was built is gone')] };
    const problems = [
      ...identityProblems(root, state, moment, last),
      ...(await checkpointProblems(deps, log, engine, signal)),
    ];
    return { state, problems };
  } catch (error) {
    if (!(error instanceof PermanentError)) throw error;
    return { problems: [problem(errorCode(error), root, errorLine(error))] };
  }
}

function identityProblems(
  root: string,
  { metaData, txns }: TableState,
  { tables, mirrorId }: Moment,
  last: RecordedTable | undefined,
): readonly Problem[] {
  const isNamed = Object.values(tables).some((named) => named?.id === metaData.id);
  if (!isNamed || (last !== undefined && last.tableId !== metaData.id))
    return [problem('LAKE_FOREIGN', root, 'it is not the table that this mirror built')];
  const build = txns.get(appIdOf(mirrorId))?.version ?? -1;
  if (last === undefined || build >= last.build) return [];
  return [
    problem('LAKE_TABLE_OLDER', root, `it is as build ${build} left it, the last one was ${last.build}`),
  ];
}

async function checkpointProblems(
  { objects }: LakeDeps,
  log: LogListing,
  engine: Engine,
  signal: AbortSignal,
): Promise<readonly Problem[]> {
  const { root } = log;
  const { unreadable, isHintWrong } = await checkCheckpoints(objects, log, engine, signal);
  const message = (what: string): string => `${what}; 'ledger-mirror lake' takes it away`;
  return [
    ...unreadable.map((version) =>
      problem('LAKE_CHECKPOINT_BROKEN', root, message(`checkpoint ${version} cannot be read`)),
    ),
    ...(isHintWrong
      ? [problem('LAKE_CHECKPOINT_BROKEN', root, message('_last_checkpoint names none that can be read'))]
      : []),
  ];
}

async function checkFile(
  { objects }: LakeDeps,
  { key, bytes, sha256 }: StoredFile,
  signal: AbortSignal,
): Promise<readonly Problem[]> {
  try {
    const found = await measure(await objects.read(key, signal));
    if (found.bytes === bytes && (sha256 ?? found.sha256) === found.sha256) return [];
    return [problem('LAKE_FILE_CORRUPT', key, 'its bytes are not those that were published')];
  } catch (error) {
    if (!(error instanceof PermanentError)) throw error;
    return [problem(errorCode(error), key, error.message)];
  }
}
