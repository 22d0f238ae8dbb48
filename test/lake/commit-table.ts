/** A commit by another writer than a build. */
import { type Commit, encodeCommit, putCommit } from '../../src/lake/delta/log.ts';
import type { ObjectStore } from '../../src/objects/object-store.ts';

export function commitTable(
  objects: ObjectStore,
  root: string,
  version: number,
  commit: Commit,
  signal: AbortSignal,
): Promise<void> {
  return putCommit(objects, root, version, encodeCommit(commit), signal);
}
