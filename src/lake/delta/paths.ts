/** Paths of files in a Delta log, and the keys that they stand for. */
import { PermanentError } from '../../core/errors.ts';
import { checkKey } from '../../ledger/objects/object-keys.ts';

const VERSION_DIGITS = 20;

export function logPrefix(root: string): string {
  return `${root}/_delta_log/`;
}

export function commitKey(root: string, version: number): string {
  return `${logPrefix(root)}${padded(version)}.json`;
}

export function checkpointKey(root: string, version: number): string {
  return `${logPrefix(root)}${padded(version)}.checkpoint.parquet`;
}

export function hintKey(root: string): string {
  return `${logPrefix(root)}_last_checkpoint`;
}

/** The version that a name in the log's folder stands for, and what it is. */
export function readLogName(
  name: string,
): { readonly version: number; readonly kind: 'commit' | 'checkpoint' } | undefined {
  const match = /^(\d{20})\.(json|checkpoint\.parquet)$/.exec(name);
  if (match?.[1] === undefined) return undefined;
  return { version: Number(match[1]), kind: match[2] === 'json' ? 'commit' : 'checkpoint' };
}

export function padded(version: number): string {
  return version.toString().padStart(VERSION_DIGITS, '0');
}

/**
 * The key of a file that the log names. A log is written by whoever can write to the store: what does not
 * lie below the table is refused.
 * @throws PermanentError `LAKE_PATH_REFUSED`
 */
export function fileKey(root: string, path: string): string {
  try {
    return checkKey(`${root}/${decodeURIComponent(path)}`);
  } catch (error) {
    throw new PermanentError(
      `Cannot use the table ${root}: its log names the file ${JSON.stringify(path.slice(0, 200))}, which is not below the table; restore the table, or remove it and load again`,
      { code: 'LAKE_PATH_REFUSED', meta: { root, path: path.slice(0, 200) }, cause: error },
    );
  }
}
