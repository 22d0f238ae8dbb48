/**
 * The default locations in DATA_DIR of everything that has no other location configured,
 * and the check that the folder is writable.
 */
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

/** Options for opening an object store. */
interface StoreOpening {
  readonly config: Config;
  /** How long the store may be unreachable, in milliseconds; a minute by default. */
  readonly reachableMaxMs?: number;
  /**
   * The name of the mirror that writes. Each mirror has its own spool folder, so that two
   * mirrors that share a DATA_DIR never remove each other's files. If absent, nothing is
   * spooled.
   */
  readonly mirror?: string;
}

/** Opens the configured store. It can be read even if nothing else is running. */
export async function openStore(opening: StoreOpening): Promise<ObjectStore> {
  return openStoreAt(objectsAt(opening.config), opening);
}

/** Opens a store other than the configured one, with the same credentials. */
export async function openStoreAt(
  url: URL,
  { config, reachableMaxMs, mirror = 'reader' }: StoreOpening,
): Promise<ObjectStore> {
  const { openObjectStore } = await import('../storage/open-store.ts');
  return openObjectStore({
    // If a command waits less than a minute, the store must give up before the command
    // does, so that the command can report the cause.
    patienceMs: reachableMaxMs && reachableMaxMs / 2,
    url,
    spoolDir: join(config.dataDir, 'spool', mirror),
    ambient: config.ambient,
    umask: config.objectStoreUmask,
  });
}

/** Returns the path of the embedded Postgres's password file. */
export function passwordFileOf({ dataDir }: Config): string {
  return join(dataDir, 'postgres/password');
}

export function scratchDirOf({ dataDir }: Config): string {
  return join(dataDir, 'scratch');
}

/**
 * Checks that a folder is writable before anything starts; otherwise a nightly run that
 * cannot spool would fail only at its end. Creates the folder if it is missing, and
 * writes and removes a file in it.
 * @throws UsageError if the folder is not writable
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
