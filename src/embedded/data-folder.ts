/**
 * The data folder of the embedded Postgres and its password: made whole or not at all, in a folder that nobody else can
 * change. Callers hold the lock (see postgres.ts) around every change.
 */
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import * as fs from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { PermanentError, errorCode } from '../errors/errors.ts';
import { makeFolders } from '../files/folders.ts';
import {
  type Account,
  type Binaries,
  findBinaries,
  SERVER_ENV,
  serverAccount,
} from './binaries.ts';

export const SUPERUSER = 'ledger_mirror';
/** The server's user may be unable to enter the folders above: initdb and server start inside, and know it as this. */
export const HERE = '/proc/self/cwd';

const INITDB_TIMEOUT_MS = 60_000;
const INITDB_TOLD_CHARS = 2_000;
const PASSWORD_BYTES = 24;
const STICKY = 0o1000;

export interface Cluster {
  /** Holds the data folder, its password and the server's log. */
  readonly home: string;
  readonly dir: string;
  readonly account: Account;
  readonly binaries: Binaries;
  /** false only for throw-away data: a killed server keeps it, a power cut does not. */
  readonly isDurable: boolean;
}

/** Makes the folders above the data where they are missing. */
export async function openCluster(dataDir: string, isDurable: boolean): Promise<Cluster> {
  const home = join(resolve(dataDir), 'postgres');
  const ownUid = process.getuid?.() ?? 0;
  const account = serverAccount(ownUid, await ownerOf(home, ownUid));
  const binaries = findBinaries(account);
  return { home, dir: join(home, 'cluster'), account, binaries, isDurable };
}

/**
 * Makes `home` where it is missing. Only we may change what lies in it: where another could, root would write
 * through whatever that one puts there.
 * @returns the uid that the data in it belongs to
 */
async function ownerOf(home: string, ownUid: number): Promise<number> {
  try {
    await makeFolders(dirname(home));
    await makeFolders(home, 0o700);
    const isOurs =
      ownUid === 0
        ? isOnlyRoots(fs.statSync(dirname(home)), true) &&
          isOnlyRoots(fs.lstatSync(home), false)
        : fs.statSync(home).uid === ownUid;
    if (isOurs)
      return (
        fs.lstatSync(join(home, 'cluster'), { throwIfNoEntry: false })?.uid ?? ownUid
      );
  } catch (error) {
    throw notOurs(home, error);
  }
  throw notOurs(home);
}

/** @param isParent where others may make files, as in /tmp, but not rename ours */
function isOnlyRoots(found: fs.Stats, isParent: boolean): boolean {
  const isClosed =
    (found.mode & 0o022) === 0 || (isParent && (found.mode & STICKY) !== 0);
  return found.isDirectory() && found.uid === 0 && isClosed;
}

function notOurs(home: string, cause?: unknown): PermanentError {
  return new PermanentError(
    `Cannot use ${home} for the embedded Postgres: it belongs to another user, others may write it, or it cannot be written (${cause === undefined ? 'EACCES' : errorCode(cause)}); run as its owner, or set DATA_DIR`,
    { code: 'EMBEDDED_NOT_OURS', meta: { home }, cause },
  );
}

/**
 * Makes the data folder where there is none, and its password before it. A crash on the way leaves only a staging folder,
 * which the next call clears.
 * @returns the password
 * @throws PermanentError `EMBEDDED_PASSWORD`, `EMBEDDED_INITDB`, `EMBEDDED_VERSION`
 */
export async function ensureData(cluster: Cluster): Promise<string> {
  const { home, dir, binaries } = cluster;
  const passwordFile = join(home, 'password');
  const isThere = fs.existsSync(dir);
  const password = isThere
    ? readPassword(home, passwordFile)
    : await makePassword(cluster, passwordFile);
  clearStaging(home);
  if (!isThere) await makeData(cluster, passwordFile);
  const found = fs.readFileSync(join(dir, 'PG_VERSION'), 'utf8').trim();
  if (found === binaries.major) return password;
  throw new PermanentError(
    `Cannot start the embedded Postgres on ${dir}: its data is of version ${found}, the binaries are ${binaries.major}; use the release that made it, or move the folder away to begin anew`,
    { code: 'EMBEDDED_VERSION', meta: { dir, found, expected: binaries.major } },
  );
}

/** Other users of the machine stay out. */
async function makePassword({ account }: Cluster, path: string): Promise<string> {
  const password = randomBytes(PASSWORD_BYTES).toString('base64url');
  // Left by a start that was killed before there was any data.
  fs.rmSync(path, { force: true });
  // Exclusive, so it follows no link.
  await using file = await open(path, 'wx', 0o600);
  await file.writeFile(password);
  // initdb opens it again, as the server's user; nobody else enters the folder.
  await giveTo(account, file);
  await file.sync();
  return password;
}

function readPassword(home: string, path: string): string {
  try {
    return fs.readFileSync(path, 'utf8').trim();
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw notOurs(home, error);
    throw new PermanentError(
      `Cannot open the embedded Postgres in ${home}: its file 'password' is missing; put it back, or move the folder away to begin anew`,
      { code: 'EMBEDDED_PASSWORD', meta: { home }, cause: error },
    );
  }
}

async function makeData(
  { home, dir, account, binaries, isDurable }: Cluster,
  passwordFile: string,
) {
  const staging = fs.mkdtempSync(join(home, 'initdb-'));
  await using made = await openFolder(staging);
  await giveTo(account, made);
  await using password = await open(passwordFile);
  const args = [
    '-D',
    HERE,
    '-U',
    SUPERUSER,
    '--auth=scram-sha-256',
    '--pwfile=/proc/self/fd/3',
  ];
  args.push(
    '--encoding=UTF8',
    '--locale=C',
    '--no-instructions',
    ...(isDurable ? [] : ['--no-sync']),
  );
  const ended = spawnSync(join(binaries.binDir, 'initdb'), args, {
    ...account,
    cwd: staging,
    env: SERVER_ENV,
    encoding: 'utf8',
    stdio: ['ignore', 'ignore', 'pipe', password.fd],
    timeout: INITDB_TIMEOUT_MS,
    killSignal: 'SIGKILL',
  });
  if (ended.status !== 0) {
    const stderr = (ended.stderr ?? '').slice(-INITDB_TOLD_CHARS);
    const end = ended.status ?? ended.signal ?? errorCode(ended.error);
    const reason = stderr.trim().split('\n').at(-1) || `initdb ended with ${end}`;
    throw new PermanentError(
      `Cannot make the embedded Postgres's data folder in ${home}: ${reason}; free space or rights may be missing`,
      { code: 'EMBEDDED_INITDB', meta: { home, stderr }, cause: ended.error },
    );
  }
  fs.renameSync(staging, dir);
  await using parent = await openFolder(home);
  await parent.sync();
}

/** What killed first starts left. An initdb that outlived its parent may still write: then the next start clears. */
function clearStaging(home: string): void {
  for (const name of fs
    .readdirSync(home)
    .filter((entry) => entry.startsWith('initdb-'))) {
    try {
      fs.rmSync(join(home, name), { recursive: true, force: true });
    } catch (error) {
      if (!['ENOTEMPTY', 'ENOENT'].includes(errorCode(error))) throw error;
    }
  }
}

/** Which is itself a folder, and no link to one. */
function openFolder(path: string): Promise<FileHandle> {
  const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = fs.constants;
  return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

/** What root has just made, for the server's user; by handle, so that it is what was made. */
async function giveTo({ uid, gid }: Account, made: FileHandle): Promise<void> {
  if (uid !== undefined && gid !== undefined) await made.chown(uid, gid);
}
