/** Commands and paths as they are typed in the folder that this process was started in. */
import { relative } from 'node:path';
import { COMMAND } from '../core/own-name.ts';

/** As it is typed in a shell, for the mirror in this folder. */
export function commandOn(dataDir: string): string {
  return `DATA_DIR='${near(dataDir)}' ${COMMAND}`;
}

/** A path as it is typed in that folder. */
export function near(path: string): string {
  const fromHere = relative(process.cwd(), path) || '.';
  return fromHere.startsWith('..') ? path : fromHere;
}
