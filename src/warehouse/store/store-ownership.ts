/**
 * The owner of a store. The object `mirror.json` names the mirror that a store belongs to
 * and the one database that may write there. It exposes a wrong OBJECT_STORE_URL, a
 * copied database or a second mirror on the same prefix before another mirror's objects
 * are removed, replaced or taken for missing.
 *
 * The owner is recognised by two facts together: the claim, an id that both the object
 * and the database have, and the database's own system identifier and oid. A copy of the
 * database has the same claim but a different identifier or oid; a former owner has the
 * same identifiers but an older claim.
 */
import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import { errorCode, PermanentError } from '../../errors/errors.ts';
import { parseJson } from '../../ledger/json-fields.ts';
import { readManifest } from '../../ledger/manifest.ts';
import { isManifestKey } from '../../ledger/object-keys.ts';
import { builder } from '../../postgres/builder.ts';
import { execute, readRow, readRows } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';
import type { ObjectStore } from '../../storage/object-store.ts';
import { LEDGER_PREFIX, type StoreAndCatalog } from './unknown-objects.ts';

const OWNER_KEY = 'mirror.json';
const OWNER_BYTES_MAX = 64 * 1024;
/**
 * How many of the oldest and of the newest segments are looked up to see whether a
 * store has this mirror's objects.
 */
const SAMPLE_SEGMENTS = 5;

/** Error codes for a store that this database must not write to. */
const STORE_STRANGE = [
  'OBJECT_STORE_FOREIGN',
  'OBJECT_STORE_OWNED_ELSEWHERE',
  'OBJECT_STORE_EMPTY',
] as const;
type StoreStrange = (typeof STORE_STRANGE)[number];

const ownerSchema = z.object({
  version: z.literal(1),
  /** Identifies the owner, together with `database`. */
  claim: z.uuid(),
  mirrorId: z.uuid(),
  /** The lineage of the mirror's publications. */
  warehouseId: z.uuid(),
  database: z.object({
    /**
     * The system identifier in decimal; null if the database does not permit reading it.
     */
    systemIdentifier: z.string().nullable(),
    oid: z.string(),
  }),
  claimedAt: z.string(),
});
type StoreOwner = z.output<typeof ownerSchema>;

/** The ids that identify this database as an owner. */
interface OwnIdentity {
  readonly mirrorId: string;
  readonly warehouseId: string;
  /** The claim; null if this database has never claimed a store. */
  readonly claim: string | null;
  readonly systemIdentifier: string | null;
  readonly oid: string;
  /** Whether a rebuild from the store's objects is unfinished. */
  readonly isRebuilding: boolean;
}

/**
 * What this database may do with a store.
 * - 'owner': it may write
 * - 'reader': the store belongs to the same mirror, but another database owns it
 * - 'unclaimed': no database has claimed the store yet, and nothing suggests that it
 *   belongs to another mirror
 */
export type StoreStanding = 'owner' | 'reader' | 'unclaimed';

/**
 * Determines which mirror a store belongs to, without writing anything.
 * @throws PermanentError `OBJECT_STORE_FOREIGN` if it belongs to another mirror,
 *   `OBJECT_STORE_EMPTY` if the objects that this mirror has published are not there
 */
export async function examineStore(
  catalog: StoreAndCatalog,
  signal: AbortSignal,
): Promise<StoreStanding> {
  const own = await readOwnIdentity(catalog);
  const owner = await readOwner(catalog.objects, signal);
  if (owner === undefined) {
    await refuseStrangeContent(catalog, own, signal);
    return 'unclaimed';
  }
  if (isOwner(owner, own)) return 'owner';
  if (owner.warehouseId === own.warehouseId) return 'reader';
  throw foreign(catalog.objects, owner);
}

/** Whether an error means that this database must not write to the store. */
export function isStoreStrange(error: unknown): boolean {
  return STORE_STRANGE.some((code) => code === errorCode(error));
}

/**
 * Makes sure that this database owns the store. An unclaimed store is claimed, unless its
 * contents show that it belongs to another mirror.
 * @param isRebuilding whether the database is about to be rebuilt from whatever the store
 *   contains
 * @throws PermanentError with a code for which `isStoreStrange` returns true
 */
export async function requireOwnership(
  catalog: StoreAndCatalog,
  signal: AbortSignal,
  isRebuilding = false,
): Promise<void> {
  const { objects } = catalog;
  const own = await readOwnIdentity(catalog);
  let owner = await readOwner(objects, signal);
  if (owner === undefined) {
    await refuseStrangeContent(catalog, own, signal, isRebuilding);
    const claimed = isRebuilding
      ? describe(own, await readContentLineage(objects, signal))
      : describe(own);
    await objects.putIfAbsent(OWNER_KEY, encodeOwner(claimed), signal);
    // Another mirror may have claimed the store first.
    owner = await readOwner(objects, signal);
  }
  if (owner === undefined) throw contentMissing(objects);
  if (isOwner(owner, own)) {
    if (own.claim === null) await recordClaim(catalog, owner.claim);
    // Correct the claim if it names another lineage than this database's own. They differ
    // if, since the claim, the database has published objects in a lineage of its own, or
    // was rebuilt from another store.
    const isOtherLineage = owner.warehouseId !== own.warehouseId;
    if (isOtherLineage && (await hasLineage(catalog, own))) {
      const { warehouseId } = own;
      const corrected = encodeOwner({ ...owner, warehouseId });
      await objects.replaceBytes(OWNER_KEY, corrected, signal);
    }
    return;
  }
  throw owner.warehouseId === own.warehouseId
    ? ownedElsewhere(objects, owner)
    : foreign(objects, owner);
}

/**
 * Makes this database the owner. The former owner stops writing at its next check. Only
 * an operator may decide this. A database that contains ledgers can take over only stores
 * of its own mirror; otherwise a wrong OBJECT_STORE_URL could shut down another mirror.
 * @throws PermanentError `OBJECT_STORE_FOREIGN` if the store belongs to another mirror
 *   and this database is not empty
 */
export async function takeOverStore(
  catalog: StoreAndCatalog,
  signal: AbortSignal,
): Promise<void> {
  const own = await readOwnIdentity(catalog);
  const former = await readOwner(catalog.objects, signal).catch(
    (error: unknown) => {
      // An unreadable owner object is treated as no owner.
      if (isStoreStrange(error)) return undefined;
      throw error;
    },
  );
  const isOfOther =
    former !== undefined && former.warehouseId !== own.warehouseId;
  if (isOfOther && (await readSampleKeys(catalog)).length > 0)
    throw foreign(
      catalog.objects,
      former,
      'an empty database may take it over',
    );
  const owner = (await hasLineage(catalog, own))
    ? describe(own)
    : describe(
        own,
        former?.warehouseId ??
          (await readContentLineage(catalog.objects, signal)),
      );
  await catalog.objects.replaceBytes(OWNER_KEY, encodeOwner(owner), signal);
  await recordClaim(catalog, owner.claim);
}

/**
 * Whether this database has a lineage of its own. An empty database has none, and neither
 * has one whose rebuild is unfinished: both continue the lineage of the objects in the
 * store.
 */
async function hasLineage(
  catalog: StoreAndCatalog,
  { isRebuilding }: OwnIdentity,
): Promise<boolean> {
  return !isRebuilding && (await readSampleKeys(catalog)).length > 0;
}

/**
 * Builds a new ownership claim on the store for this database.
 * @param lineage the lineage of the store's objects, which a rebuild keeps. That way, if
 *   the rebuild fails, the database that published them (or a backup of it) still counts
 *   as the owner's and can take the store back.
 */
function describe(own: OwnIdentity, lineage?: string): StoreOwner {
  const { mirrorId, systemIdentifier, oid } = own;
  const warehouseId = lineage ?? own.warehouseId;
  return {
    version: 1,
    claim: randomUUID(),
    mirrorId,
    warehouseId,
    database: { systemIdentifier, oid },
    claimedAt: new Date().toISOString(),
  };
}

function encodeOwner(owner: StoreOwner): Buffer {
  return Buffer.from(`${JSON.stringify(owner, undefined, 2)}\n`);
}

function isOwner({ claim, database }: StoreOwner, own: OwnIdentity): boolean {
  // Some hosted servers do not show their identifier.
  const isSameServer =
    database.systemIdentifier === null ||
    own.systemIdentifier === null ||
    database.systemIdentifier === own.systemIdentifier;
  const isSameDatabase = isSameServer && database.oid === own.oid;
  // A process that was killed after claiming the store, but before recording it, left no
  // claim in the database.
  return isSameDatabase && (own.claim === null || own.claim === claim);
}

/**
 * Reads the store's owner; undefined if it has no owner.
 * @throws PermanentError `OBJECT_STORE_FOREIGN` if this version cannot read the object
 */
async function readOwner(
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<StoreOwner | undefined> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of await objects.read(OWNER_KEY, signal)) {
      bytes += (chunk as Buffer).length;
      if (bytes > OWNER_BYTES_MAX) break;
      chunks.push(chunk as Buffer);
    }
  } catch (error) {
    if (errorCode(error) === 'OBJECT_MISSING') return undefined;
    throw error;
  }
  const text = Buffer.concat(chunks).toString('utf8');
  const parsed = ownerSchema.safeParse(parseJson(text));
  if (parsed.success) return parsed.data;
  const state = `${OWNER_KEY} there is not what this version writes`;
  throw notOurs('OBJECT_STORE_FOREIGN', objects, state);
}

/**
 * Checks the contents of a store without an owner object, such as one written by an
 * earlier version.
 */
async function refuseStrangeContent(
  catalog: StoreAndCatalog,
  own: OwnIdentity,
  signal: AbortSignal,
  isRebuilding = false,
): Promise<void> {
  const { objects } = catalog;
  if (own.claim !== null) throw contentMissing(objects);
  const keys = await readSampleKeys(catalog);
  if (keys.length === 0) {
    if (!isRebuilding) await refuseForeignManifest(catalog, own, signal);
    return;
  }
  for (const key of keys) {
    if ((await objects.head(key, signal)) !== undefined) return;
  }
  throw contentMissing(objects);
}

/** Checks one manifest of the store, for a database without segments. */
async function refuseForeignManifest(
  { objects }: StoreAndCatalog,
  { warehouseId }: OwnIdentity,
  signal: AbortSignal,
): Promise<void> {
  const lineage = await readContentLineage(objects, signal);
  if (lineage === undefined || lineage === warehouseId) return;
  const state = `another mirror, ${lineage}, published in it`;
  throw notOurs('OBJECT_STORE_FOREIGN', objects, state);
}

/**
 * Reads one manifest of the store, to see which mirror publishes there.
 * @returns the manifest's lineage; undefined if the store has no readable manifest
 */
async function readContentLineage(
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<string | undefined> {
  for await (const { key } of objects.list(LEDGER_PREFIX, signal)) {
    if (!isManifestKey(key)) continue;
    const manifest = await readManifest(objects, key, signal).catch(
      (error: unknown) => {
        if (errorCode(error) === 'MANIFEST_INVALID') return undefined;
        throw error;
      },
    );
    return manifest?.warehouseId;
  }
  return undefined;
}

async function readOwnIdentity({ db }: StoreAndCatalog): Promise<OwnIdentity> {
  const action = 'read which database this is';
  const identity = statement({
    mirrorId: 'uuid',
    warehouseId: 'uuid',
    claim: 'uuid?',
    oid: 'text?',
    mayReadSystem: 'boolean?',
    isRebuilding: 'boolean',
  })`
    select mirror_id as "mirrorId", warehouse_id as "warehouseId",
      store_claim as claim, is_rebuilding as "isRebuilding",
      (select oid::text from pg_database where datname = current_database()) as oid,
      has_function_privilege('pg_control_system()', 'execute') as "mayReadSystem"
    from mirror.identity`;
  const row = await readRow(db, action, identity);
  let systemIdentifier: string | null = null;
  if (row.mayReadSystem === true) {
    const system = statement({ id: 'text?' })`
      select system_identifier::text as id from pg_control_system()`;
    systemIdentifier = (await readRow(db, action, system)).id;
  }
  const { mirrorId, warehouseId, claim, isRebuilding } = row;
  const oid = row.oid ?? '';
  return { mirrorId, warehouseId, claim, systemIdentifier, oid, isRebuilding };
}

/** Reads the object keys of the oldest and of the newest current segments. */
async function readSampleKeys({
  db,
}: StoreAndCatalog): Promise<readonly string[]> {
  const sample = statement({ key: 'text' })`
    (select object_key as key from mirror.segments where status = 'current'
      order by segment_id limit ${SAMPLE_SEGMENTS})
    union
    (select object_key from mirror.segments where status = 'current'
      order by segment_id desc limit ${SAMPLE_SEGMENTS})`;
  const rows = await readRows(db, 'choose segments to look up', sample);
  return rows.map(({ key }) => key);
}

async function recordClaim(
  { db }: StoreAndCatalog,
  claim: string,
): Promise<void> {
  const update = builder
    .updateTable('mirror.identity')
    .set({ store_claim: claim });
  await execute(db, 'record the claim of the object store', update);
}

function contentMissing(objects: ObjectStore): PermanentError {
  return notOurs(
    'OBJECT_STORE_EMPTY',
    objects,
    'it lacks what this mirror has published; it is a different store, ' +
      'or has lost its content',
  );
}

/**
 * Returns the error for a store of another mirror.
 * @param but which database may still take it over
 */
function foreign(
  objects: ObjectStore,
  owner: StoreOwner,
  but?: string,
): PermanentError {
  return notOurs(
    'OBJECT_STORE_FOREIGN',
    objects,
    `it belongs to another mirror (warehouse ${owner.warehouseId}, database oid ` +
      `${owner.database.oid}, since ${owner.claimedAt})` +
      (but === undefined
        ? ''
        : `, and this database holds ledgers; only ${but}`),
  );
}

function ownedElsewhere(
  objects: ObjectStore,
  owner: StoreOwner,
): PermanentError {
  return notOurs(
    'OBJECT_STORE_OWNED_ELSEWHERE',
    objects,
    `another database of this mirror owns it (oid ${owner.database.oid}, since ` +
      `${owner.claimedAt}); this one may read`,
  );
}

function notOurs(
  code: StoreStrange,
  objects: ObjectStore,
  state: string,
): PermanentError {
  const message =
    `Cannot write to ${objects.url}: ${state}; check OBJECT_STORE_URL, or, if the ` +
    "former owner is gone for good, run 'ledger-mirror load --all --take-over'";
  return new PermanentError(message, { code, meta: { store: objects.url } });
}
