/**
 * Programs from Debian's packages, with the dependencies that this machine lacks,
 * unpacked into a cache folder. This needs no special rights, and changes nothing on the
 * machine.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const APT_TIMEOUT_MS = 180_000;
const UNPACKED_AT_ONCE = 2;

/**
 * Unpacks packages, unless the cache has them.
 * @param name the name of the folder in the cache, which contains only these packages
 * @returns the root folder of the unpacked files
 */
export async function unpackDebian(
  name: string,
  packages: readonly string[],
): Promise<string> {
  const cache = await cacheFolder();
  const root = join(cache, `${name}-${process.arch}`);
  if (existsSync(root)) return root;
  const work = await mkdtemp(join(cache, `${name}-download-`));
  try {
    await unpack(await download(packages, work), join(work, 'root'));
    // The rename makes the folder appear whole or not at all. If another run was faster,
    // its folder is just as good.
    await rename(join(work, 'root'), root).catch((error: unknown) => {
      if (!existsSync(root)) throw error;
    });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
  return root;
}

/**
 * Downloads the packages with apt. It reads this machine's own list of packages to find
 * out which are missing, but keeps its state in our folder.
 */
async function download(
  packages: readonly string[],
  work: string,
): Promise<readonly string[]> {
  const lists = join(work, 'lists');
  const archives = join(work, 'cache', 'archives');
  await mkdir(join(lists, 'partial'), { recursive: true });
  await mkdir(join(archives, 'partial'), { recursive: true });
  const options = [
    `Dir::State=${work}`,
    `Dir::State::lists=${lists}`,
    `Dir::Cache=${join(work, 'cache')}`,
    'Dir::State::status=/var/lib/dpkg/status',
    'APT::Sandbox::User=',
    'Debug::NoLocking=1',
    'Acquire::http::Timeout=20',
    'Acquire::Retries=2',
  ].flatMap((option) => ['-o', option]);
  const limits = { cwd: work, timeout: APT_TIMEOUT_MS };
  await run('apt-get', [...options, 'update', '-qq'], limits);
  const install = [
    'install',
    '-y',
    '-qq',
    '--no-install-recommends',
    '--download-only',
    ...packages,
  ];
  await run('apt-get', [...options, ...install], limits);
  const files = (await readdir(archives)).filter((file) =>
    file.endsWith('.deb'),
  );
  return files.map((file) => join(archives, file));
}

async function unpack(files: readonly string[], root: string): Promise<void> {
  await mkdir(root, { recursive: true });
  const left = [...files];
  const lane = async (): Promise<void> => {
    for (let file = left.pop(); file !== undefined; file = left.pop()) {
      await run('dpkg-deb', ['-x', file, root], { timeout: APT_TIMEOUT_MS });
    }
  };
  await Promise.all(Array.from({ length: UNPACKED_AT_ONCE }, lane));
}

export function libraryFolder(): string {
  return process.arch === 'arm64' ? 'aarch64-linux-gnu' : 'x86_64-linux-gnu';
}

/**
 * Returns the environment in which a program from an unpacked package finds its libraries
 * and modules.
 */
export async function unpackedEnv(
  root: string,
): Promise<Record<string, string>> {
  const libraries = join(root, 'usr', 'lib', libraryFolder());
  const nested = await readdir(libraries, { withFileTypes: true }).catch(
    () => [],
  );
  const folders = nested
    .filter((entry) => entry.isDirectory())
    .map((entry) => join(libraries, entry.name));
  return {
    PATH: `${join(root, 'usr', 'bin')}${delimiter}${process.env['PATH'] ?? ''}`,
    LD_LIBRARY_PATH: [
      libraries,
      join(root, 'lib', libraryFolder()),
      ...folders,
    ].join(delimiter),
    PYTHONPATH: join(root, 'usr', 'lib', 'python3', 'dist-packages'),
  };
}

/**
 * Returns the cache folder, shared by all of this user's checkouts, or one in the
 * temporary folder.
 */
export async function cacheFolder(): Promise<string> {
  for (const folder of [
    join(homedir(), '.cache', 'ledger-mirror'),
    join(tmpdir(), 'ledger-mirror-cache'),
  ]) {
    try {
      await mkdir(folder, { recursive: true });
      await rm(await mkdtemp(join(folder, 'probe-')), { recursive: true });
      return folder;
    } catch {
      // Not writable: try the next one.
    }
  }
  throw new Error('no cache folder can be written');
}
