/** Published objects that the database does not know: it was lost, went back to a backup, or is another mirror's. */
import { PermanentError } from '../../core/errors.ts';
import { type Manifest, readManifest } from '../../ledger/objects/manifest.ts';
import { isManifestKey, manifestKey, objectKeyOf, partyPrefix } from '../../ledger/objects/object-keys.ts';
import type { ObjectStore } from '../../objects/object-store.ts';
import type { Database } from '../../postgres/database.ts';
import type { Problem } from '../ports.ts';
import { readKnownObjects } from './segment-records.ts';

const LEDGER_PREFIX = 'ledger/';
/** Asked of the database together. */
const KEYS_AT_ONCE = 1_000;
/** Manifests that are read only to tell whose they are. */
const OWNERS_READ_MAX = 100;
const MANIFEST_BYTES_MAX = 4n * 2n ** 20n;

export interface UnknownObject {
  /** Of its manifest. */
  readonly key: string;
  readonly manifestBytes: bigint;
  /** Of the object itself; undefined where it is not there. */
  readonly bytes: bigint | undefined;
}

export interface Known {
  readonly objects: ObjectStore;
  readonly db: Database;
}

/** Some at a time, in the order of their keys; with how many keys there were. */
export async function* unknownObjects(
  { objects, db }: Known,
  signal: AbortSignal,
  prefix = LEDGER_PREFIX,
): AsyncGenerator<{ readonly listed: number; readonly unknown: readonly UnknownObject[] }> {
  let page: UnknownObject[] = [];
  const lookUp = async () => {
    const listed = page;
    page = [];
    const keys = listed.map(({ key }) => objectKeyOf(key));
    const known = await readKnownObjects(db, keys);
    return { listed: listed.length, unknown: listed.filter(({ key }) => !known.has(objectKeyOf(key))) };
  };
  // An object comes right before its manifest.
  let before = { key: '', bytes: 0n };
  for await (const { key, bytes } of objects.list(prefix, signal)) {
    const isBeside = before.key === objectKeyOf(key);
    if (isManifestKey(key))
      page.push({ key, manifestBytes: bytes, bytes: isBeside ? before.bytes : undefined });
    before = { key, bytes };
    if (page.length === KEYS_AT_ONCE) yield await lookUp();
  }
  if (page.length > 0) yield await lookUp();
}

/** @throws PermanentError `OBJECT_MISSING` or `MANIFEST_INVALID` where it cannot be believed */
export async function checkedManifest(
  { key, manifestBytes, bytes }: UnknownObject,
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<Manifest> {
  const misplaced = (state: string): PermanentError =>
    new PermanentError(`Cannot use the manifest ${key}: ${state}; its range is asked again`, {
      code: 'MANIFEST_INVALID',
      meta: { key },
    });
  if (manifestBytes > MANIFEST_BYTES_MAX) throw misplaced('it is too large for one');
  const manifest = await readManifest(objects, key, signal);
  if (!key.startsWith(partyPrefix(manifest.partyId)) || manifestKey(manifest.objectKey) !== key)
    throw misplaced(`it is of ${manifest.objectKey}`);
  if (bytes !== manifest.objectBytes) throw misplaced('its object is not there, or has another size');
  return manifest;
}

/** @returns `notRecorded`: of this mirror, as far as it was looked at */
export async function checkStore(
  known: Known,
  warehouseId: string,
  signal: AbortSignal,
): Promise<{ readonly notRecorded: number; readonly problems: readonly Problem[] }> {
  const problems: Problem[] = [];
  let [notRecorded, isAnyKnown] = [0, false];
  for await (const { listed, unknown } of unknownObjects(known, signal)) {
    isAnyKnown ||= unknown.length < listed;
    for (const { key } of unknown) {
      const isRead = notRecorded < OWNERS_READ_MAX;
      // None where the manifest was taken away since it was listed, or is none.
      const manifest = isRead ? await readManifest(known.objects, key, signal).catch(refused) : undefined;
      if (manifest === undefined || manifest.warehouseId === warehouseId) notRecorded += 1;
      else {
        const message = `it was published by another mirror, ${manifest.warehouseId}`;
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

function refused(error: unknown): undefined {
  if (!(error instanceof PermanentError)) throw error;
}
