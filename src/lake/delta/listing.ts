/** What lies in a store: the logs among it, as their names tell. */
import { PermanentError } from '../../core/errors.ts';
import type { Micros } from '../../core/time.ts';
import type { ListedObject, ObjectStore } from '../../objects/object-store.ts';
import { hintKey, logPrefix, readLogName } from './paths.ts';

const COMMIT_BYTES_MAX = 256n * 2n ** 20n;

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
  const [commits, checkpoints]: [number[], number[]] = [[], []];
  const modifiedAt = new Map<number, Micros>();
  const prefix = logPrefix(root);
  for (const { key, bytes, modifiedAt: at } of listed) {
    const named = key.startsWith(prefix) ? readLogName(key.slice(prefix.length)) : undefined;
    if (named === undefined) continue;
    if (bytes > COMMIT_BYTES_MAX)
      throw brokenLog(root, named.version, `its ${named.kind} has ${bytes} bytes`);
    (named.kind === 'commit' ? commits : checkpoints).push(named.version);
    if (named.kind === 'commit') modifiedAt.set(named.version, at);
  }
  const inOrder = (a: number, b: number): number => a - b;
  return {
    root,
    commits: commits.toSorted(inOrder),
    checkpoints: checkpoints.toSorted(inOrder),
    modifiedAt,
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
