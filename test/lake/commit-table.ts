/** Commits and checkpoints by another writer than a build. */
import type { LakeDeps } from '../../src/lake/build/build.ts';
import type { Action } from '../../src/lake/delta/actions.ts';
import { writeCheckpoint } from '../../src/lake/delta/checkpoint.ts';
import { commitKey, listObjects } from '../../src/lake/delta/listing.ts';
import { encodeCommit, readTable } from '../../src/lake/delta/log.ts';
import { openEngine } from '../../src/lake/local/duckdb.ts';
import type { ObjectStore } from '../../src/storage/object-store.ts';

export async function commitTable(
  objects: ObjectStore,
  root: string,
  version: number,
  {
    operation,
    actions,
  }: { readonly operation: string; readonly actions: readonly Action[] },
  signal: AbortSignal,
): Promise<void> {
  const content = encodeCommit(operation, actions);
  const outcome = await objects.putIfAbsent(
    commitKey(root, version),
    content,
    signal,
    'lake-commit-',
  );
  if (outcome === 'present')
    throw new Error(`version ${version} of ${root} is there`);
}

/** A checkpoint of the newest version, sooner than a build writes one. */
export async function checkpointTable(
  { objects, scratchDir }: Pick<LakeDeps, 'objects' | 'scratchDir'>,
  root: string,
  signal: AbortSignal,
): Promise<void> {
  await using engine = await openEngine(scratchDir);
  const listed = await listObjects({ objects, signal }, root);
  const access = { ...engine, objects, signal, listed };
  await writeCheckpoint(access, root, (await readTable(access, root))!);
}
