/** Finds published objects that no row of the database refers to. */
import { PermanentError } from '../../errors/errors.ts';
import {
  type Manifest,
  MANIFEST_BYTES_MAX,
  readManifest,
} from '../../ledger/manifest.ts';
import {
  isManifestKey,
  manifestKey,
  objectKeyOf,
  partyPrefix,
} from '../../ledger/object-keys.ts';
import type { Database } from '../../postgres/database.ts';
import { readRows } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';
import type { ObjectStore } from '../../storage/object-store.ts';

export const LEDGER_PREFIX = 'ledger/';
/** Maximum number of keys that one statement looks up. */
const KEYS_PER_LOOKUP = 1_000;

/** The store, and the database that describes it. */
export interface StoreAndCatalog {
  readonly objects: ObjectStore;
  readonly db: Database;
}

/** A manifest in the store that the database does not know. */
export interface UnknownObject {
  /** The key of the manifest. */
  readonly key: string;
  readonly manifestBytes: bigint;
  /**
   * Size of the object that the manifest describes; undefined if the object is not listed
   * next to it.
   */
  readonly bytes: bigint | undefined;
}

/** One page of a listing. */
export interface UnknownPage {
  /** How many manifests the page lists, including known ones. */
  readonly listed: number;
  readonly unknown: readonly UnknownObject[];
}

/**
 * Returns those keys that a segment (current or not) or an unfinished publication refers
 * to.
 */
export async function readKnownObjects(
  db: Database,
  keys: readonly string[],
): Promise<ReadonlySet<string>> {
  const known = statement({ objectKey: 'text' })`
    select object_key as "objectKey" from mirror.segments
    where object_key = any(${[...keys]}::text[])
    union
    select jsonb_path_query(plan, '$.**.objectKey') #>> '{}'
    from mirror.publications where state = 'intent'`;
  const rows = await readRows(db, 'look up which objects are known', known);
  return new Set(rows.map(({ objectKey }) => objectKey));
}

/** Lists the manifests under a prefix in pages, ordered by key. */
export async function* listUnknownObjects(
  { objects, db }: StoreAndCatalog,
  signal: AbortSignal,
  prefix = LEDGER_PREFIX,
): AsyncGenerator<UnknownPage> {
  let page: UnknownObject[] = [];
  // An object is listed right before its manifest, whose key is longer.
  let previous = { key: '', bytes: 0n };
  for await (const { key, bytes } of objects.list(prefix, signal)) {
    if (isManifestKey(key)) {
      const isBeside = previous.key === objectKeyOf(key);
      const objectBytes = isBeside ? previous.bytes : undefined;
      page.push({ key, manifestBytes: bytes, bytes: objectBytes });
    }
    previous = { key, bytes };
    if (page.length === KEYS_PER_LOOKUP) {
      yield await selectUnknown(db, page);
      page = [];
    }
  }
  if (page.length > 0) yield await selectUnknown(db, page);
}

async function selectUnknown(
  db: Database,
  page: readonly UnknownObject[],
): Promise<UnknownPage> {
  const keys = page.map(({ key }) => objectKeyOf(key));
  const known = await readKnownObjects(db, keys);
  const unknown = page.filter(({ key }) => !known.has(objectKeyOf(key)));
  return { listed: page.length, unknown };
}

/**
 * Reads the manifest of an unknown object, and checks that it is under the right key
 * and next to its object.
 * @throws PermanentError `OBJECT_MISSING` or `MANIFEST_INVALID` if it cannot be used
 */
export async function readUnknownManifest(
  { key, manifestBytes, bytes }: UnknownObject,
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<Manifest> {
  if (manifestBytes > MANIFEST_BYTES_MAX) {
    throw unusable(key, 'it is too large for a manifest');
  }
  const manifest = await readManifest(objects, key, signal);
  const isInPlace =
    key.startsWith(partyPrefix(manifest.partyId)) &&
    manifestKey(manifest.objectKey) === key;
  if (!isInPlace) throw unusable(key, `it describes ${manifest.objectKey}`);
  if (bytes !== manifest.objectBytes) {
    throw unusable(key, 'its object is not there, or has another size');
  }
  return manifest;
}

function unusable(key: string, state: string): PermanentError {
  const message = `Cannot use the manifest ${key}: ${state}; its range is exported again`;
  return new PermanentError(message, {
    code: 'MANIFEST_INVALID',
    meta: { key },
  });
}
