/** The folder where objects grow before they are published. Nothing in it is visible to readers. */
import { lstat, readdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { absent } from '../core/byte-sums.ts';
import { makeFolders } from '../core/folders.ts';
import { checkKey } from '../ledger/objects/object-keys.ts';

export class Spool {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Where a file of this name goes; the folder is made. */
  async path(name: string): Promise<string> {
    const path = join(this.#folder, checkKey(name).replaceAll('/', '_'));
    await makeFolders(this.#folder);
    return path;
  }

  /** Removes the files whose names begin with `prefix`. */
  async clear(prefix: string): Promise<{ removed: number }> {
    return this.#removeWhere(async (name) => name.startsWith(prefix));
  }

  /** Removes the files that nobody has written to for so long. */
  async sweep(olderThanMs: number): Promise<{ removed: number }> {
    const before = Date.now() - olderThanMs;
    return this.#removeWhere(async (_, path) => {
      const facts = await lstat(path).catch(absent);
      return facts !== undefined && facts.isFile() && facts.mtimeMs < before;
    });
  }

  async #removeWhere(test: (name: string, path: string) => Promise<boolean>): Promise<{ removed: number }> {
    let removed = 0;
    for (const name of (await readdir(this.#folder).catch(absent)) ?? []) {
      const path = join(this.#folder, name);
      if (!(await test(name, path))) continue;
      await unlink(path).catch(absent);
      removed += 1;
    }
    return { removed };
  }
}
