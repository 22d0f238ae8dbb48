/** Makes folders at paths that users choose. */
import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errorCode } from '../errors/errors.ts';

/**
 * Makes a folder with its parents. Node's own `mkdir({ recursive: true })` never ends
 * if the parents exist and nothing can be made in them, as in `/proc`.
 * @param mode the mode of the last folder; its parents get the default mode
 * @returns the first folder that was made; undefined if all existed
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
