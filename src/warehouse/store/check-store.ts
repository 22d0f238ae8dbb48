/** Reports published objects that the database does not record, for `verify`. */
import { PermanentError } from '../../errors/errors.ts';
import { isStoreFault } from '../../errors/faults.ts';
import { type Manifest, readManifest } from '../../ledger/manifest.ts';
import { readIdentity } from '../../postgres/identity.ts';
import type { ObjectStore } from '../../storage/object-store.ts';
import type { Problem } from '../ports.ts';
import {
  LEDGER_PREFIX,
  listUnknownObjects,
  type StoreAndCatalog,
} from './unknown-objects.ts';

/** Maximum number of manifests read to find out which mirror published them. */
const OWNERS_READ_MAX = 100;

/** Objects in the store that the database does not record. */
export interface StoreFindings {
  /**
   * Number of objects that no segment refers to. Among the first `OWNERS_READ_MAX`, only
   * objects of this mirror are counted; beyond that, objects of any mirror.
   */
  readonly notRecorded: number;
  readonly problems: readonly Problem[];
}

export async function checkStore(
  catalog: StoreAndCatalog,
  signal: AbortSignal,
): Promise<StoreFindings> {
  const { warehouseId } = await readIdentity(catalog.db);
  const problems: Problem[] = [];
  let notRecorded = 0;
  let isAnyKnown = false;
  for await (const { listed, unknown } of listUnknownObjects(catalog, signal)) {
    isAnyKnown ||= unknown.length < listed;
    for (const { key } of unknown) {
      const isRead = notRecorded < OWNERS_READ_MAX;
      const manifest = isRead
        ? await findManifest(catalog.objects, key, signal)
        : undefined;
      if (manifest === undefined || manifest.warehouseId === warehouseId) {
        notRecorded += 1;
        continue;
      }
      const message = `it was published by another mirror, ${manifest.warehouseId}`;
      problems.push({ code: 'OBJECT_FOREIGN', subject: key, message });
    }
  }

  if (!isAnyKnown && problems.length === 0 && notRecorded > 0) {
    const message =
      `the store holds ${notRecorded} objects and this database knows none of them; ` +
      '`ledger-mirror load --all --take-over` rebuilds it from them';
    problems.push({
      code: 'OBJECTS_NOT_RECORDED',
      subject: LEDGER_PREFIX,
      message,
    });
  }
  return { notRecorded, problems };
}

/**
 * Reads a manifest.
 * @returns undefined if the manifest was removed after it was listed, or is not a valid
 *   manifest
 */
async function findManifest(
  objects: ObjectStore,
  key: string,
  signal: AbortSignal,
): Promise<Manifest | undefined> {
  try {
    return await readManifest(objects, key, signal);
  } catch (error) {
    if (error instanceof PermanentError && !isStoreFault(error)) {
      return undefined;
    }
    throw error;
  }
}
