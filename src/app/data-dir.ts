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

/** How to open an object store. */
interface StoreOpening {
  readonly config: Config;
  /** How long the store may stay away, in milliseconds; a minute by default. */
  readonly reachableMaxMs?: number;
  /**
   * Names the mirror that writes. Its spool is a folder of its own, so that two mirrors
   * with one DATA_DIR never remove each other's files. Absent: nothing is spooled.
   */
  readonly mirror?: string;
}

/** Opens the configured store. Nothing else needs to run for it to be read. */
export async function openStore(opening: StoreOpening): Promise<ObjectStore> {
  return openStoreAt(objectsAt(opening.config), opening);
}

/** Opens another store than the configured one, with the same credentials. */
export async function openStoreAt(
  url: URL,
  { config, reachableMaxMs, mirror = 'reader' }: StoreOpening,
): Promise<ObjectStore> {
  const { openObjectStore } = await import('../storage/open-store.ts');
  return openObjectStore({
    // A command that waits less than a minute reports why, so the store gives up earlier.
    patienceMs: reachableMaxMs && reachableMaxMs / 2,
    url,
    spoolDir: join(config.dataDir, 'spool', mirror),
    ambient: config.ambient,
    umask: config.objectStoreUmask,
  });
}

/** The file with the password of an embedded Postgres. */
export function passwordFileOf({ dataDir }: Config): string {
  return join(dataDir, 'postgres/password');
}

export function scratchDirOf({ dataDir }: Config): string {
  return join(dataDir, 'scratch');
}

/**
 * Before anything starts: a night that cannot spool would fail at its end. Makes the
 * folder where it is missing, and writes and removes a file in it.
 * @throws UsageError if that is refused
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
