/** Objects that this warehouse does not know: of another mirror, or of this one and not recorded. */
import { PermanentError } from '../core/errors.ts';
import { readManifest } from '../ledger/objects/manifest.ts';
import { isManifestKey, objectKeyOf } from '../ledger/objects/object-keys.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import type { Problem } from './ports.ts';
import type { VerifyStore } from './store/verify-store.ts';

const LEDGER_PREFIX = 'ledger/';
const LISTED_TOGETHER = 1_000;
/** Manifests of unknown objects that are read, to tell whose they are. */
const UNKNOWN_READ_MAX = 100;

export interface StoreCheck {
  readonly notRecorded: number;
  readonly problems: readonly Problem[];
}

export async function checkStore(
  repository: VerifyStore,
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<StoreCheck> {
  const warehouseId = await repository.warehouseId();
  const problems: Problem[] = [];
  let [notRecorded, isAnyKnown] = [0, false];
  for await (const keys of manifestKeys(objects, signal)) {
    const known = await repository.knownObjects(keys.map(objectKeyOf));
    isAnyKnown ||= known.size > 0;
    for (const key of keys.filter((one) => !known.has(objectKeyOf(one)))) {
      const lineage = notRecorded < UNKNOWN_READ_MAX ? await readLineage(objects, key, signal) : undefined;
      if (lineage === undefined || lineage === warehouseId) notRecorded += 1;
      else {
        const message = `it was published by another mirror, ${lineage}`;
        problems.push({ code: 'OBJECT_FOREIGN', subject: key, message });
      }
    }
  }
  if (!isAnyKnown && problems.length === 0 && notRecorded > 0) {
    const message = `the store holds ${notRecorded} objects and this database knows none of them; \`ledger-mirror load --all\` rebuilds it from them`;
    problems.push({ code: 'OBJECTS_NOT_RECORDED', subject: LEDGER_PREFIX, message });
  }
  return { notRecorded, problems };
}

async function* manifestKeys(objects: ObjectStore, signal: AbortSignal): AsyncGenerator<readonly string[]> {
  let keys: string[] = [];
  for await (const { key } of objects.list(LEDGER_PREFIX, signal)) {
    if (!isManifestKey(key)) continue;
    keys.push(key);
    if (keys.length < LISTED_TOGETHER) continue;
    yield keys;
    keys = [];
  }
  if (keys.length > 0) yield keys;
}

async function readLineage(
  objects: ObjectStore,
  key: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  try {
    return (await readManifest(objects, key, signal)).warehouseId;
  } catch (error) {
    // Taken away since it was listed, or no manifest: it says nothing of whose it is.
    if (!(error instanceof PermanentError)) throw error;
    return undefined;
  }
}
