/**
 * Chooses the system account that the embedded Postgres runs as.
 */
import * as fs from 'node:fs';
import { userInfo } from 'node:os';
import { PermanentError } from '../errors/errors.ts';

/** The ids that `spawn` needs to switch to the account; empty if we already run as it. */
export interface Account {
  readonly uid?: number;
  readonly gid?: number;
}

/** The fields of an /etc/passwd line that are needed here. */
export interface PasswdEntry {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
}

/**
 * Unprivileged users to run the server as if we are root; the first one that exists is
 * used. `games` exists on every system and runs nothing else. `nobody` is unsuitable,
 * because other programs may run as that user and could read the server's memory and
 * files.
 */
const STAND_INS = ['ledger-mirror', 'postgres', 'games'];

/**
 * Chooses the user that runs the server. Postgres refuses to run as root, and initdb
 * refuses a user without a name.
 * @param ownerUid the owner of the data folder; if we are root, this user is preferred
 * @throws PermanentError `EMBEDDED_ACCOUNT` if there is no suitable user
 */
export function serverAccount(
  ownUid: number,
  ownerUid: number,
  passwd = parsePasswd(fs.readFileSync('/etc/passwd', 'utf8')),
): Account {
  if (ownUid !== 0) {
    const isListed = passwd.some((entry) => entry.uid === ownUid);
    if (isListed || isKnownToSystem(ownUid)) return {};
    throw new PermanentError(
      `Cannot start the embedded Postgres as uid ${ownUid}: the system knows no ` +
        'name for it (/etc/passwd, directory services), which Postgres demands; add ' +
        'one or set DATABASE_URL',
      { code: 'EMBEDDED_ACCOUNT', meta: { uid: ownUid } },
    );
  }

  const owner = passwd.find(
    (entry) => entry.uid === ownerUid && entry.uid !== 0,
  );
  const standIn = owner ?? findStandIn(passwd);
  if (standIn !== undefined) return { uid: standIn.uid, gid: standIn.gid };
  throw new PermanentError(
    'Cannot start the embedded Postgres as root: /etc/passwd has none of ' +
      `${STAND_INS.join(', ')} to run it as; add one, run as another user, or set DATABASE_URL`,
    { code: 'EMBEDDED_ACCOUNT', meta: { uid: ownUid } },
  );
}

export function parsePasswd(text: string): readonly PasswdEntry[] {
  const entries = text.matchAll(/^([^:\n]+):[^:\n]*:(\d+):(\d+):/gm);
  return [...entries].map(([, name = '', uid, gid]) => ({
    name,
    uid: Number(uid),
    gid: Number(gid),
  }));
}

function findStandIn(passwd: readonly PasswdEntry[]): PasswdEntry | undefined {
  for (const name of STAND_INS) {
    const entry = passwd.find((candidate) => candidate.name === name);
    if (entry !== undefined) return entry;
  }
  return undefined;
}

/**
 * Whether the system has a name for the user. Users from a directory service (LDAP, SSSD)
 * have one without being in /etc/passwd.
 */
function isKnownToSystem(uid: number): boolean {
  try {
    return userInfo().uid === uid;
  } catch {
    return false;
  }
}
