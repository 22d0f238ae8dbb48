/** What lies in a store: the logs among it, as their names tell, and the keys that a log stands for. */
import { PermanentError } from '../../core/errors.ts';
import type { Micros } from '../../core/time.ts';
import { checkKey } from '../../ledger/objects/object-keys.ts';
import type { ListedObject, ObjectStore } from '../../objects/object-store.ts';

const COMMIT_BYTES_MAX = 256n * 2n ** 20n;
const VERSION_DIGITS = 20;
const LOG_NAME = /^(\d{20})\.(json|checkpoint\.parquet)$/;

export function padded(version: number): string {
  return version.toString().padStart(VERSION_DIGITS, '0');
}

export function logPrefix(root: string): string {
  return `${root}/_delta_log/`;
}

export function commitKey(root: string, version: number): string {
  return `${logPrefix(root)}${padded(version)}.json`;
}

export function checkpointKey(root: string, version: number): string {
  return `${logPrefix(root)}${padded(version)}.checkpoint.parquet`;
}

export function hintKey(root: string): string {
  return `${logPrefix(root)}_last_checkpoint`;
}

/**
 * The key of a file that the log names. A log is written by whoever can write to the store: what does not
 * lie below the table is refused.
 * @throws PermanentError `LAKE_PATH_REFUSED`
 */
export function fileKey(root: string, path: string): string {
  try {
    return checkKey(`${root}/${decodeURIComponent(path)}`);
  } catch (error) {
    throw new PermanentError(
      `Cannot use the table ${root}: its log names the file ${JSON.stringify(path.slice(0, 200))}, which is not below the table; restore the table, or remove it and load again`,
      { code: 'LAKE_PATH_REFUSED', meta: { root, path: path.slice(0, 200) }, cause: error },
    );
  }
}

/** What lies in a log's folder. */
export interface LogListing {
  readonly root: string;
  /** In order. */
  readonly commits: readonly number[];
  readonly checkpoints: readonly number[];
  /** Of commits. */
  readonly modifiedAt: ReadonlyMap<number, Micros>;
  readonly hasHint: boolean;
}

/** @param listed may hold objects from outside of the log, too */
export function logAmong(root: string, listed: readonly ListedObject[]): LogListing {
  const prefix = logPrefix(root);
  const found = listed.flatMap(({ key, bytes, modifiedAt }) => {
    const name = key.startsWith(prefix) ? key.slice(prefix.length) : '';
    const [, digits, ending] = LOG_NAME.exec(name) ?? [];
    if (ending === undefined) return [];
    const [version, kind] = [Number(digits), ending === 'json' ? 'commit' : 'checkpoint'];
    if (bytes > COMMIT_BYTES_MAX) throw brokenLog(root, version, `its ${kind} has ${bytes} bytes`);
    return [{ version, kind, modifiedAt }];
  });
  const inOrder = found.toSorted((a, b) => a.version - b.version);
  const commits = inOrder.filter(({ kind }) => kind === 'commit');
  return {
    root,
    commits: commits.map(({ version }) => version),
    checkpoints: inOrder.flatMap(({ version, kind }) => (kind === 'checkpoint' ? version : [])),
    modifiedAt: new Map(commits.map(({ version, modifiedAt }) => [version, modifiedAt])),
    hasHint: listed.some(({ key }) => key === hintKey(root)),
  };
}

export async function listObjects(
  objects: ObjectStore,
  prefix: string,
  signal: AbortSignal,
): Promise<readonly ListedObject[]> {
  const listed: ListedObject[] = [];
  for await (const object of objects.list(prefix, signal)) listed.push(object);
  return listed;
}

export async function listLog(objects: ObjectStore, root: string, signal: AbortSignal): Promise<LogListing> {
  return logAmong(root, await listObjects(objects, logPrefix(root), signal));
}

export function newestVersion({ commits, checkpoints }: LogListing): number {
  return Math.max(commits.at(-1) ?? -1, checkpoints.at(-1) ?? -1);
}

export function brokenLog(root: string, version: number, state: string, cause?: unknown): PermanentError {
  return new PermanentError(
    `Cannot read version ${version} of ${root}: ${state}; restore _delta_log from a backup, or remove the table and load again`,
    { code: 'LAKE_LOG_BROKEN', meta: { root, version }, cause },
  );
}
