/**
 * Creates the embedded Postgres's data folder and password, all or nothing, in a folder
 * that no other user can change. Callers that change anything must hold `turn.lock` (see
 * postgres.ts).
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import * as fs from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { PermanentError, errorCode } from '../errors/errors.ts';
import { makeFolders } from '../files/folders.ts';
import { type Account, serverAccount } from './account.ts';
import { type Binaries, findBinaries, SERVER_ENV } from './binaries.ts';
import { HOST } from './host.ts';

export const SUPERUSER = 'ledger_mirror';

const INITDB_TIMEOUT_MS = 60_000;
const INITDB_STDERR_CHARS = 2_000;
const PASSWORD_BYTES = 24;
const STICKY = 0o1000;

export interface Cluster {
  /** The folder that contains the data folder, its password and the server's log. */
  readonly home: string;
  /** Postgres's own data folder. */
  readonly dir: string;
  /** The account that runs the server and owns its files. */
  readonly account: Account;
  readonly binaries: Binaries;
  /**
   * false only for throwaway data, which survives a killed server but not a power
   * failure.
   */
  readonly isDurable: boolean;
}

/**
 * Prepares the folders that contain the data folder, and chooses the account and the
 * Postgres programs for the server.
 */
export async function openCluster(
  dataDir: string,
  isDurable: boolean,
): Promise<Cluster> {
  const home = join(resolve(dataDir), 'postgres');
  const ownUid = process.getuid?.() ?? 0;
  const account = serverAccount(ownUid, await prepareHome(home, ownUid));
  const binaries = findBinaries(account);
  return { home, dir: join(home, 'cluster'), account, binaries, isDurable };
}

/**
 * Creates `home` if it is missing, and checks that no other user can write to it: they
 * could otherwise plant a link that root would follow.
 * @returns the uid that owns the data in `home`
 */
async function prepareHome(home: string, ownUid: number): Promise<number> {
  try {
    await makeFolders(dirname(home));
    await makeFolders(home, 0o700);
    const isOurs =
      ownUid === 0 ? isRootsHome(home) : fs.statSync(home).uid === ownUid;
    if (isOurs) {
      const data = fs.lstatSync(join(home, 'cluster'), {
        throwIfNoEntry: false,
      });
      return data?.uid ?? ownUid;
    }
  } catch (error) {
    throw notOurs(home, error);
  }
  throw notOurs(home);
}

function isRootsHome(home: string): boolean {
  const parent = fs.statSync(dirname(home));
  // In a sticky folder such as /tmp, other users may create files but cannot rename ours.
  const isSticky = (parent.mode & STICKY) !== 0;
  const isParentSafe =
    isRootsFolder(parent) && (isSticky || !isWritableByOthers(parent));

  const own = fs.lstatSync(home);
  return isParentSafe && isRootsFolder(own) && !isWritableByOthers(own);
}

function isRootsFolder(stats: fs.Stats): boolean {
  return stats.isDirectory() && stats.uid === 0;
}

function isWritableByOthers(stats: fs.Stats): boolean {
  return (stats.mode & 0o022) !== 0;
}

function notOurs(home: string, cause?: unknown): PermanentError {
  const code = cause === undefined ? 'EACCES' : errorCode(cause);
  return new PermanentError(
    `Cannot use ${home} for the embedded Postgres: it belongs to another user, ` +
      `others may write it, or it cannot be written (${code}); run as its owner, or ` +
      'set DATA_DIR',
    { code: 'EMBEDDED_NOT_OURS', meta: { home }, cause },
  );
}

/**
 * Creates the password and then the data folder if they are missing. A crash along the
 * way leaves only a staging folder, which the next call removes.
 * @returns the password
 * @throws PermanentError `EMBEDDED_PASSWORD`, `EMBEDDED_INITDB`, `EMBEDDED_VERSION`,
 *   `EMBEDDED_DAMAGED`
 */
export async function ensureData(
  cluster: Cluster,
  signal: AbortSignal,
): Promise<string> {
  const { home, dir, binaries } = cluster;
  const passwordFile = join(home, 'password');
  const isThere = fs.existsSync(dir);
  const password = isThere
    ? readPassword(home, passwordFile)
    : await makePassword(cluster, passwordFile);
  clearStaging(home);
  if (!isThere) await makeData(cluster, passwordFile, signal);

  const version = readVersion(cluster);
  if (version === binaries.major) return password;
  throw new PermanentError(
    `Cannot start the embedded Postgres on ${dir}: its data is of version ` +
      `${version}, the binaries are ${binaries.major}; use the release ` +
      'that created it, or move the folder away to start afresh',
    {
      code: 'EMBEDDED_VERSION',
      meta: { dir, found: version, expected: binaries.major },
    },
  );
}

function readVersion({ home, dir }: Cluster): string {
  try {
    return fs.readFileSync(join(dir, 'PG_VERSION'), 'utf8').trim();
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw error;
    throw damaged(home, 'its file PG_VERSION is missing', error);
  }
}

/**
 * Creates the error for data that no server can start on. All of it can be rebuilt from
 * the objects, and the message explains how.
 */
export function damaged(
  home: string,
  state: string,
  cause?: unknown,
): PermanentError {
  return new PermanentError(
    `Cannot start the embedded Postgres in ${home}: its data is damaged ` +
      `(${state}); end every command, move that folder away, then rebuild it from ` +
      'the objects with: ledger-mirror load --all --take-over, ledger-mirror nightly ' +
      '(docs/guides/restore.md)',
    { code: 'EMBEDDED_DAMAGED', meta: { home, state }, cause },
  );
}

/** Creates a password file that other users of the machine cannot read. */
async function makePassword(
  { account }: Cluster,
  path: string,
): Promise<string> {
  const password = randomBytes(PASSWORD_BYTES).toString('base64url');
  // A start that was killed before creating any data may have left a password.
  fs.rmSync(path, { force: true });
  // An exclusive open does not follow links.
  await using file = await open(path, 'wx', 0o600);
  await file.writeFile(password);
  // initdb reopens the file as the server's user; no other user can enter the folder.
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
      `Cannot open the embedded Postgres in ${home}: its file 'password' is ` +
        'missing; put it back, or move the folder away to start afresh',
      { code: 'EMBEDDED_PASSWORD', meta: { home }, cause: error },
    );
  }
}

async function makeData(
  cluster: Cluster,
  passwordFile: string,
  signal: AbortSignal,
): Promise<void> {
  const { home, dir, account } = cluster;
  const staging = fs.mkdtempSync(join(home, 'initdb-'));
  await using made = await openFolder(staging);
  await giveTo(account, made);
  await using password = await open(passwordFile);
  await runInitdb(cluster, staging, password, signal);

  fs.renameSync(staging, dir);
  await using parent = await openFolder(home);
  await parent.sync();
}

async function runInitdb(
  cluster: Cluster,
  staging: string,
  password: FileHandle,
  signal: AbortSignal,
): Promise<void> {
  const { home, account, binaries, isDurable } = cluster;
  // initdb starts inside the folder, because its user may not be able to enter the parent
  // folders.
  const args = [
    '-D',
    HOST.currentFolder,
    '-U',
    SUPERUSER,
    '--auth=scram-sha-256',
  ];
  args.push(`--pwfile=${HOST.descriptorPath(3)}`);
  args.push('--encoding=UTF8', '--locale=C');
  args.push('--no-instructions');
  if (!isDurable) args.push('--no-sync');
  const child = spawn(join(binaries.binDir, 'initdb'), args, {
    ...account,
    cwd: staging,
    env: SERVER_ENV,
    stdio: ['ignore', 'ignore', 'pipe', password.fd],
    timeout: INITDB_TIMEOUT_MS,
    killSignal: 'SIGKILL',
    signal,
  });

  let stderr = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-INITDB_STDERR_CHARS);
  });
  const failure = await waitForEnd(child);
  signal.throwIfAborted();
  if (failure === undefined && child.exitCode === 0) return;

  const end = child.exitCode ?? child.signalCode ?? errorCode(failure);
  const lastLine = stderr.trim().split('\n').at(-1) ?? '';
  const reason = lastLine === '' ? `initdb ended with ${end}` : lastLine;
  throw new PermanentError(
    `Cannot make the embedded Postgres's data folder in ${home}: ${reason}; free ` +
      'space or rights may be missing',
    { code: 'EMBEDDED_INITDB', meta: { home, stderr }, cause: failure },
  );
}

/**
 * Waits until the child has ended.
 * @returns the error if the child could not be started or was aborted
 */
async function waitForEnd(child: ChildProcess): Promise<unknown> {
  let failure: unknown;
  child.once('error', (error) => {
    failure = error;
  });
  // `close` comes after `error` and the last output, even for a child that never started.
  await once(child, 'close').catch(() => undefined);
  return failure;
}

/**
 * Removes what was left behind by first starts that were killed. An initdb that outlived
 * its parent may still be writing; in that case, a later start removes it.
 */
function clearStaging(home: string): void {
  for (const name of fs.readdirSync(home)) {
    if (!name.startsWith('initdb-')) continue;
    try {
      fs.rmSync(join(home, name), { recursive: true, force: true });
    } catch (error) {
      if (!['ENOTEMPTY', 'ENOENT'].includes(errorCode(error))) throw error;
    }
  }
}

/** Opens a folder, refusing a link to one. */
function openFolder(path: string): Promise<FileHandle> {
  const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = fs.constants;
  return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

/**
 * Gives what root has just created to the server's user. It works on the open handle, so
 * the target cannot have been swapped.
 */
async function giveTo({ uid, gid }: Account, made: FileHandle): Promise<void> {
  if (uid !== undefined && gid !== undefined) await made.chown(uid, gid);
}
