/** Does the lake hold what its manifest says, and what was loaded? */
import { createHash } from 'node:crypto';
import { errorCode, PermanentError } from '../core/errors.ts';
import { canonicalText, ENTRY_COLUMNS, extraFromJson, isAmountColumn } from '../ledger/canonical.ts';
import { hashText, RowDigest } from '../ledger/digest.ts';
import type { LakeFindings, Problem } from '../load/ports.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import type { LakeDeps } from './build.ts';
import { interruptible } from './duckdb.ts';
import { type Lake, openLake } from './lake.ts';
import { currentLake, filesOfPartition, type LakeFile, type PublishedPartition } from './manifest.ts';
import { SUMMARY_FORM, SUMMARY_TABLES, summaryDifference } from './summaries.ts';
import { entriesOf } from './tables.ts';
import { partitionPath } from './write-partition.ts';

const VALUE_SEPARATOR = '\u001f';
const ATTEMPTS_MAX = 3;

/**
 * Reads every file of the lake; `deep` also sums the values of every row. A lake that is older than the
 * last load is compared with itself only: being behind is no fault.
 */
export async function verifyLake(deps: LakeDeps, deep: boolean, signal: AbortSignal): Promise<LakeFindings> {
  for (let attempt = 1; ; attempt += 1) {
    const manifest = await currentLake(deps.objects, signal);
    const partitions = manifest?.partitions ?? [];
    const files = partitions.flatMap(filesOfPartition);
    const rows = partitions.reduce((sum, partition) => sum + partition.rows, 0n);
    const problems = [...(await checkFiles(deps.objects, files, signal))];
    if (problems.length === 0) {
      problems.push(...compare(partitions, await deps.books.partitions(signal)));
      if (deep) problems.push(...(await checkValues(deps, partitions, manifest?.version, signal)));
    }
    // A build may have taken files away meanwhile: then there is a newer lake to look at.
    const isReplaced = (await currentLake(deps.objects, signal))?.version !== manifest?.version;
    if (problems.length > 0 && isReplaced && attempt < ATTEMPTS_MAX) continue;
    return { files: files.length, rows, problems };
  }
}

async function checkFiles(
  objects: ObjectStore,
  files: readonly LakeFile[],
  signal: AbortSignal,
): Promise<readonly Problem[]> {
  const problems: Problem[] = [];
  for (const file of files) {
    try {
      const hash = createHash('sha256');
      for await (const chunk of (await objects.read(file.key, signal)) as AsyncIterable<Buffer>)
        hash.update(chunk);
      if (hash.digest('hex') === file.sha256) continue;
      problems.push(problem('LAKE_FILE_CORRUPT', file.key, 'its bytes are not those that were published'));
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      problems.push(problem(errorCode(error), file.key, error.message));
    }
  }
  return problems;
}

function compare(
  published: readonly PublishedPartition[],
  loaded: Awaited<ReturnType<LakeDeps['books']['partitions']>>,
): readonly Problem[] {
  const now = new Map(loaded.map((partition) => [partitionPath(partition), partition]));
  return published.flatMap((partition) => {
    const path = partitionPath(partition);
    const known = now.get(path);
    if (known?.fingerprint !== partition.fingerprint) return [];
    if (known.rows === partition.rows && known.valuesDigest === partition.valuesDigest) return [];
    return [problem('LAKE_DIFFERS', path, 'its rows are not those that were loaded')];
  });
}

async function checkValues(
  deps: LakeDeps,
  partitions: readonly PublishedPartition[],
  version: number | undefined,
  signal: AbortSignal,
): Promise<readonly Problem[]> {
  await using lake = await openLake(deps, signal);
  if (lake.version !== (version ?? 0)) return [];
  const problems: Problem[] = [];
  for (const partition of partitions) {
    if (partition.valuesDigest === undefined || partition.month === undefined) continue;
    const sum = await sumOfMonth(lake, partition.month, signal);
    if (BigInt(sum.rows) !== partition.rows || sum.hex() !== partition.valuesDigest) {
      const message = `its ${sum.rows} rows sum up to ${sum.hex()}, loaded were ${partition.valuesDigest}`;
      problems.push(problem('LAKE_VALUES_DIFFER', partitionPath(partition), message));
    }
    if (partition.summaries?.form === SUMMARY_FORM) {
      problems.push(...(await checkSummaries(lake, partition.month, signal)));
    }
  }
  return problems;
}

async function checkSummaries(lake: Lake, month: string, signal: AbortSignal): Promise<readonly Problem[]> {
  const problems: Problem[] = [];
  for (const table of SUMMARY_TABLES) {
    const subject = partitionPath({ table, month });
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

async function sumOfMonth(lake: Lake, month: string, signal: AbortSignal): Promise<RowDigest> {
  const sum = new RowDigest();
  const sql = `select concat_ws(chr(31), ${ENTRY_COLUMNS.map(canonicalExpression).join(', ')}), extra
    from ${entriesOf(month)}`;
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

function problem(code: string, subject: string, message: string): Problem {
  return { code, subject, message };
}
