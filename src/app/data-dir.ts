/** What lies in DATA_DIR where nothing else is configured, and that it can be written. */
import { randomUUID } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Config } from '../config/environment.ts';
import { errorCode, UsageError } from '../errors/errors.ts';
import { makeFolders } from '../files/folders.ts';
import type { ObjectStore } from '../storage/object-store.ts';

export function objectsAt({ objectStoreUrl, dataDir }: Config): URL {
  return objectStoreUrl ?? pathToFileURL(join(dataDir, 'objects'));
}

/**
 * Where objects and the lake are; nothing else has to run for them to be read.
 * @param given `reachableMaxMs`: how long a service may stay away
 */
export async function openStore(given: {
  config: Config;
  reachableMaxMs?: number;
}): Promise<ObjectStore> {
  const { config, reachableMaxMs } = given;
  const { openObjectStore } = await import('../storage/open-store.ts');
  return openObjectStore({
    // Half of it: whoever waits shorter than a minute wants to hear why.
    patienceMs: reachableMaxMs && reachableMaxMs / 2,
    url: objectsAt(config),
    spoolDir: join(config.dataDir, 'spool'),
    ambient: config.ambient,
  });
}

/** Of an embedded Postgres. */
export function passwordFileOf({ dataDir }: Config): string {
  return join(dataDir, 'postgres/password');
}

export function scratchDirOf({ dataDir }: Config): string {
  return join(dataDir, 'scratch');
}

/**
 * Before anything starts: a night that cannot spool would fail at its end. Makes the
 * folder where it is missing, and writes and removes a file in it.
 * @throws UsageError where that is refused
 */
export async function requireWritable(dir: string): Promise<void> {
  const probe = join(dir, `.probe-${randomUUID()}`);
  try {
    await makeFolders(dir);
    await writeFile(
      probe,
      'written and removed to see whether that is possible\n',
    );
    await rm(probe);
  } catch (error) {
    throw new UsageError([
      `DATA_DIR: cannot write to ${dir} (${errorCode(error)}); make it writable ` +
        `for user ${process.getuid?.() ?? 'of this process'}, or point DATA_DIR ` +
        'elsewhere',
    ]);
  }
}
