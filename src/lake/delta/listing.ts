/** What lies in a store: the logs among it, as their names tell. */
import { PermanentError } from '../../core/errors.ts';
import type { ObjectStore } from '../../objects/object-store.ts';
import { hintKey, logPrefix, readLogName } from './paths.ts';

const COMMIT_BYTES_MAX = 256n * 2n ** 20n;

export interface ListedObject {
  readonly key: string;
  readonly bytes: bigint;
  readonly modifiedMs: number;
}

/** What lies in a log's folder. */
export interface LogListing {
  readonly root: string;
  /** In order. */
  readonly commits: readonly number[];
  readonly checkpoints: readonly number[];
  readonly modifiedMs: ReadonlyMap<number, number>;
  readonly hasHint: boolean;
}

/** @param listed may hold objects from outside of the log, too */
export function logAmong(root: string, listed: readonly ListedObject[]): LogListing {
  const [commits, checkpoints]: [number[], number[]] = [[], []];
  const modifiedMs = new Map<number, number>();
  const prefix = logPrefix(root);
  for (const { key, bytes, modifiedMs: atMs } of listed) {
    const named = key.startsWith(prefix) ? readLogName(key.slice(prefix.length)) : undefined;
    if (named === undefined) continue;
    if (bytes > COMMIT_BYTES_MAX)
      throw brokenLog(root, named.version, `its ${named.kind} has ${bytes} bytes`);
    (named.kind === 'commit' ? commits : checkpoints).push(named.version);
    if (named.kind === 'commit') modifiedMs.set(named.version, atMs);
  }
  const inOrder = (a: number, b: number): number => a - b;
  return {
    root,
    commits: commits.toSorted(inOrder),
    checkpoints: checkpoints.toSorted(inOrder),
    modifiedMs,
    hasHint: listed.some(({ key }) => key === hintKey(root)),
  };
}

export async function listObjects(
  objects: ObjectStore,
  prefix: string,
  signal: AbortSignal,
): Promise<readonly ListedObject[]> {
  const listed: ListedObject[] = [];
  for await (const { key, bytes, modifiedAt } of objects.list(prefix, signal))
    listed.push({ key, bytes, modifiedMs: Number(modifiedAt / 1000n) });
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
