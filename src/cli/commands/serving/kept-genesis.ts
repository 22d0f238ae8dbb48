/** When a sandbox network began, kept in a file: at every later start it is the same network, grown by the time that has passed. */
import { readFile, rename, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { z } from 'zod';
import { makeFolders } from '../../../core/folders.ts';
import type { Micros } from '../../../core/time.ts';

const document = z.object({ genesisMicros: z.string().regex(/^\d{1,18}$/) });

/**
 * @param fresh the beginning, in µs since 1970, of a network that is started for the first time
 * @returns what the file holds; `fresh`, which it holds from now on, where it held nothing of use
 */
export async function keptGenesis(path: string, fresh: Micros): Promise<Micros> {
  const stored = document.safeParse(
    await readFile(path, 'utf8')
      .then(JSON.parse)
      .catch(() => undefined),
  );
  if (stored.success) return BigInt(stored.data.genesisMicros);
  await makeFolders(dirname(path));
  await writeFile(`${path}.new`, JSON.stringify({ genesisMicros: String(fresh) }), { flush: true });
  await rename(`${path}.new`, path);
  return fresh;
}
