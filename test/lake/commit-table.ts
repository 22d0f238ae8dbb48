/** A commit by another writer than a build. */
import type { Action } from '../../src/lake/delta/actions.ts';
import { commitKey } from '../../src/lake/delta/listing.ts';
import { encodeCommit } from '../../src/lake/delta/log.ts';
import type { ObjectStore } from '../../src/objects/object-store.ts';

export async function commitTable(
  objects: ObjectStore,
  root: string,
  version: number,
  { operation, actions }: { readonly operation: string; readonly actions: readonly Action[] },
  signal: AbortSignal,
): Promise<void> {
  const content = encodeCommit(operation, actions);
  const outcome = await objects.putIfAbsent(commitKey(root, version), content, signal, 'lake-commit-');
  if (outcome === 'present') throw new Error(`version ${version} of ${root} is there`);
}
