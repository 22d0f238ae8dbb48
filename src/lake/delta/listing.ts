/**
 * Finds the logs of Delta tables among listed objects, and builds the keys of their
 * files.
 */
import { PermanentError } from '../../errors/errors.ts';
import { checkKey } from '../../ledger/object-keys.ts';
import type { ListedObject } from '../../storage/object-store.ts';
import type { StoreAccess } from '../local/scratch.ts';

const COMMIT_BYTES_MAX = 256n * 2n ** 20n;
const VERSION_DIGITS = 20;
const LOG_NAME = /^(\d{20})\.(json|checkpoint\.parquet)$/;

export function padded(version: number): string {
  return version.toString().padStart(VERSION_DIGITS, '0');
}

export function logPrefix(root: string): string {
  return `${root}/_delta_log/`;
}

export function commitKey(root: string, version: number): string {
  return `${logPrefix(root)}${padded(version)}.json`;
}

export function checkpointKey(root: string, version: number): string {
  return `${logPrefix(root)}${padded(version)}.checkpoint.parquet`;
}

/**
 * Returns the key of a file that the log refers to. Anyone who can write to the store can
 * write a log, so a path outside the table is refused.
 * @throws PermanentError `LAKE_PATH_REFUSED`
 */
export function fileKey(root: string, path: string): string {
  try {
    return checkKey(`${root}/${decodeURIComponent(path)}`);
  } catch (error) {
    throw new PermanentError(
      `Cannot use the table ${root}: its log names the file ` +
        `${JSON.stringify(path.slice(0, 200))}, which is not below the table; ` +
        'restore the table, or remove it and load again',
      {
        code: 'LAKE_PATH_REFUSED',
        meta: { root, path: path.slice(0, 200) },
        cause: error,
      },
    );
  }
}

/** A commit or a checkpoint. */
export interface LogObject extends ListedObject {
  readonly version: number;
  readonly kind: 'commit' | 'checkpoint';
}

/**
 * Returns the commits and checkpoints of a table's log that are among the listed
 * objects, sorted by version.
 * @throws PermanentError `LAKE_LOG_BROKEN` if one of these objects is too large to be
 *   real
 */
export function logAmong(
  root: string,
  listed: readonly ListedObject[],
): readonly LogObject[] {
  const prefix = logPrefix(root);
  const found = listed.flatMap((object): LogObject[] => {
    const name = object.key.startsWith(prefix)
      ? object.key.slice(prefix.length)
      : '';
    const [, digits, ending] = LOG_NAME.exec(name) ?? [];
    if (ending === undefined) return [];
    const version = Number(digits);
    const kind = ending === 'json' ? 'commit' : 'checkpoint';
    if (object.bytes > COMMIT_BYTES_MAX)
      throw brokenLog(root, version, `its ${kind} has ${object.bytes} bytes`);
    return [{ ...object, version, kind }];
  });
  return found.toSorted((a, b) => a.version - b.version);
}

export async function listObjects(
  { objects, signal }: StoreAccess,
  prefix: string,
): Promise<ListedObject[]> {
  const listed: ListedObject[] = [];
  for await (const object of objects.list(prefix, signal)) listed.push(object);
  return listed;
}

export function brokenLog(
  root: string,
  version: number,
  state: string,
  cause?: unknown,
): PermanentError {
  return new PermanentError(
    `Cannot read version ${version} of ${root}: ${state}; restore _delta_log from ` +
      'a backup, or remove the table and load again',
    { code: 'LAKE_LOG_BROKEN', meta: { root, version }, cause },
  );
}
