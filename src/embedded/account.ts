/**
 * Postgres refuses to run as root, and initdb refuses a user without a name: this decides as whom
 * the server runs.
 */
import { readFileSync } from 'node:fs';
import { PermanentError } from '../core/errors.ts';

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
 * @param ownerUid who owns the server's data folder: root goes on as that user
 * @throws PermanentError `EMBEDDED_ACCOUNT` where there is no user fit to run it
 */
export function serverAccount(
  ownUid: number,
  ownerUid: number,
  passwd = parsePasswd(readFileSync('/etc/passwd', 'utf8')),
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
    STAND_INS.map((name) => passwd.find((entry) => entry.name === name)).find((entry) => entry !== undefined);
  if (standIn !== undefined) return { uid: standIn.uid, gid: standIn.gid };
  throw new PermanentError(
    `Cannot start the embedded Postgres as root: /etc/passwd has none of ${STAND_INS.join(', ')} to run it as; add one, run as another user, or set DATABASE_URL`,
    { code: 'EMBEDDED_ACCOUNT', meta: { uid: ownUid } },
  );
}

export function parsePasswd(
  text: string,
): { readonly name: string; readonly uid: number; readonly gid: number }[] {
  return text.split('\n').flatMap((line) => {
    const [name, , uid, gid] = line.split(':');
    return name === undefined || uid === undefined || gid === undefined || !/^\d+$/.test(uid)
      ? []
      : [{ name, uid: Number(uid), gid: Number(gid) }];
  });
}
