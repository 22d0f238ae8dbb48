/** Folders on the local disk that live as long as what uses them. */
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { makeFolders } from '../../core/folders.ts';

const PREFIX = 'lake-';
/** No build and no query lasts that long, and no load is that far from its build: its process was killed. */
const LEFT_BEHIND_MS = 24 * 3_600_000;

/** A new folder below `parent`, removed with all that is in it. */
export async function scratchFolder(parent: string): Promise<AsyncDisposable & { readonly path: string }> {
  await makeFolders(parent);
  const path = await mkdtemp(join(parent, PREFIX));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

/** Removes the folders of builds and queries that were killed. */
export function sweepScratch(parent: string): Promise<void> {
  return sweepFolder(parent, PREFIX);
}

/** Removes what has been left behind in a folder. */
export async function sweepFolder(folder: string, prefix = ''): Promise<void> {
  await makeFolders(folder);
  for (const name of await readdir(folder)) {
    if (!name.startsWith(prefix)) continue;
    const path = join(folder, name);
    // One that cannot be looked at stays: it must not keep a build from its own.
    const facts = await stat(path).catch(() => undefined);
    if (facts !== undefined && Date.now() - facts.mtimeMs > LEFT_BEHIND_MS)
      await rm(path, { recursive: true, force: true });
  }
}
