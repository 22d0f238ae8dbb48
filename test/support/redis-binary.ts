/**
 * Which Redis the tests can start here: `redis-server` of this machine, Debian's package unpacked
 * into a cache folder (no rights needed), or, as the last resort, a stand-in in JavaScript.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { cacheFolder } from './debian-packages.ts';

export interface RedisCommand {
  readonly command: string;
  /** Come before the options of redis-server, which the stand-in understands as far as it needs. */
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** false for the stand-in: in memory only, no dump. */
  readonly isReal: boolean;
}

const run = promisify(execFile);
const PROBE_TIMEOUT_MS = 5_000;
const APT_TIMEOUT_MS = 30_000;
const PACKAGES = ['redis-server', 'redis-tools', 'libjemalloc2', 'liblzf1', 'libatomic1'];
/** With what nearly every machine has already, and what is named differently on some. */
const PACKAGES_MORE = [...PACKAGES, 'libssl3'];

/** Looks once through what there is; the keeper of servers asks and tells the test files. */
export async function chooseRedis(): Promise<RedisCommand> {
  let reason = 'none on the PATH, and the unpacked one does not start';
  try {
    for (const candidate of [onPath, () => fromDebian(PACKAGES), () => fromDebian(PACKAGES_MORE)]) {
      const found = await candidate();
      if (found !== undefined && (await works(found))) return found;
    }
  } catch (error) {
    reason = error instanceof Error ? (error.message.split('\n', 1)[0] ?? '') : String(error);
  }
  process.stderr.write(`Tests use a Redis stand-in in JavaScript: no redis-server here (${reason})\n`);
  const script = fileURLToPath(new URL('redis-stand-in.ts', import.meta.url));
  return { command: process.execPath, args: [script], env: {}, isReal: false };
}

function onPath(): RedisCommand | undefined {
  const folders = (process.env['PATH'] ?? '').split(delimiter).filter((folder) => folder !== '');
  const command = folders.map((folder) => join(folder, 'redis-server')).find((path) => existsSync(path));
  return command === undefined ? undefined : { command, args: [], env: {}, isReal: true };
}

async function works({ command, env }: RedisCommand): Promise<boolean> {
  return run(command, ['--version'], { env: { ...process.env, ...env }, timeout: PROBE_TIMEOUT_MS }).then(
    () => true,
    () => false,
  );
}

async function fromDebian(packages: readonly string[]): Promise<RedisCommand> {
  const cache = await cacheFolder();
  const root = join(cache, `redis-${process.arch}-${packages.length}`);
  if (!existsSync(root)) {
    const work = await mkdtemp(join(cache, 'redis-download-'));
    try {
      await download(packages, work);
      // Whole or not at all; where another run was faster, its folder is as good.
      await rename(join(work, 'root'), root).catch((error: unknown) => {
        if (!existsSync(root)) throw error;
      });
    } finally {
      await rm(work, { recursive: true, force: true });
    }
  }
  const libraries = await readdir(join(root, 'usr', 'lib'));
  return {
    command: join(root, 'usr', 'bin', 'redis-server'),
    args: [],
    env: { LD_LIBRARY_PATH: libraries.map((name) => join(root, 'usr', 'lib', name)).join(delimiter) },
    isReal: true,
  };
}

/** As root or not: apt's state lies in a folder of our own, so nothing of the machine is changed. */
async function download(packages: readonly string[], work: string): Promise<void> {
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
    'Acquire::http::Timeout=10',
    'Acquire::Retries=1',
  ].flatMap((option) => ['-o', option]);
  const limits = { cwd: work, timeout: APT_TIMEOUT_MS };
  await run('apt-get', [...options, 'update', '-qq'], limits);
  await run('apt-get', [...options, 'download', '-qq', ...packages], limits);
  for (const file of await readdir(work)) {
    if (file.endsWith('.deb')) await run('dpkg', ['-x', file, 'root'], limits);
  }
}
