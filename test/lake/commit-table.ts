/** A commit by another writer than a build. */
import type { Action } from '../../src/lake/delta/actions.ts';
import { encodeCommit, putCommit } from '../../src/lake/delta/log.ts';
import type { ObjectStore } from '../../src/objects/object-store.ts';

export function commitTable(
  objects: ObjectStore,
  root: string,
  version: number,
  { operation, actions }: { readonly operation: string; readonly actions: readonly Action[] },
  signal: AbortSignal,
): Promise<void> {
  return putCommit({ objects, signal }, root, version, encodeCommit(operation, actions));
}
