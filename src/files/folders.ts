/** Creates folders at paths chosen by users. */
import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errorCode } from '../errors/errors.ts';

/**
 * Creates a folder and its parents. Node's own `mkdir({ recursive: true })` never returns
 * if the parents exist but nothing can be created in them, as in `/proc`.
 * @param mode the mode of the last folder; its parents get the default mode
 * @returns the first folder that was created; undefined if all existed
 */
export async function makeFolders(
  folder: string,
  mode?: number,
): Promise<string | undefined> {
  try {
    await mkdir(folder, { mode });
    return folder;
  } catch (error) {
    const code = errorCode(error);
    if (code === 'EEXIST') return undefined;
    if (code !== 'ENOENT') throw error;
  }
  const first = await makeFolders(dirname(folder));
  await mkdir(folder, { mode }).catch((error: unknown) => {
    if (errorCode(error) !== 'EEXIST') throw error;
  });
  return first ?? folder;
}
