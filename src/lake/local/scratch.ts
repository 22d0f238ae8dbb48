/** Folders on the local disk that live as long as what uses them. */
import { mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';

const PREFIX = 'lake-';
/** No build and no query lasts that long: its process was killed. */
const LEFT_BEHIND_MS = 24 * 3_600_000;

/** A new folder below `parent`, removed with all that is in it. */
export async function scratchFolder(parent: string): Promise<AsyncDisposable & { readonly path: string }> {
  await mkdir(parent, { recursive: true });
  const path = await mkdtemp(join(parent, PREFIX));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

/** Removes the folders of processes that were killed. */
export async function sweepScratch(parent: string): Promise<void> {
  await mkdir(parent, { recursive: true });
  for (const name of await readdir(parent)) {
    if (!name.startsWith(PREFIX)) continue;
    const path = join(parent, name);
    const facts = await stat(path).catch(() => undefined);
    if (facts !== undefined && Date.now() - facts.mtimeMs > LEFT_BEHIND_MS) {
      await rm(path, { recursive: true, force: true });
    }
  }
}
