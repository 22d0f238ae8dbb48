/**
 * Published objects that the database does not know: it was lost, went back to a backup, or they are another mirror's.
 * A lost database comes back from their manifests alone, and one that went back to a backup learns what was published
 * since. What no manifest says is asked of the source again.
 */
import { sql } from 'kysely';
import { errorLine, PermanentError } from '../../errors/errors.ts';
import {
  coverageRow,
  insertCoverage,
  readCoverages,
  supersede,
} from '../../catalog/coverage-rows.ts';
import { lockEach } from '../../catalog/leases.ts';
import { insertSegments, segmentRow } from '../../catalog/segment-rows.ts';
import { type Manifest, readManifest } from '../../ledger/manifest.ts';
import {
  isManifestKey,
  manifestKey,
  objectKeyOf,
  partyPrefix,
} from '../../ledger/object-keys.ts';
import type { ObjectStore } from '../../storage/object-store.ts';
import type { Database } from '../../postgres/database.ts';
import { readIdentity } from '../../postgres/identity.ts';
import { inTransaction, readRows } from '../../postgres/transaction.ts';
import { chooseNewest } from '../load-plan.ts';
import type { Problem } from '../ports.ts';

const PROBLEMS_KEPT_MAX = 100;
const LEDGER_PREFIX = 'ledger/';
/** Asked of the database together. */
const KEYS_AT_ONCE = 1_000;
/** Manifests that are read only to tell whose they are. */
const OWNERS_READ_MAX = 100;
const MANIFEST_BYTES_MAX = 4n * 2n ** 20n;

export type RebuildResult = Readonly<Awaited<ReturnType<typeof learn>>>;

/** From what any mirror has published; undefined where the database is not empty, save by a rebuild that was killed. */
export async function rebuildIfEmpty(
  deps: Known,
  signal: AbortSignal,
): Promise<RebuildResult | undefined> {
  const begin = sql`update mirror.identity set is_rebuilding = true where is_rebuilding
    or not exists (select from mirror.segments) and not exists (select from mirror.coverage) returning 1 as one`;
  const begun = await readRows(deps.db, 'begin to rebuild', begin);
  return begun.length > 0 ? learn(deps, signal) : undefined;
}

/**
 * Before anything is asked of the source or removed from the store: what a killed rebuild has not come to yet, and what
 * was published after the backup that the database went back to, would be asked for as if nobody knew it; and what the
 * source serves no more would be lost.
 * @param partyId whose ledger is to be asked for; absent: all
 * @returns undefined where the database knows all that this mirror has published
 */
export async function adoptUnknownManifests(
  deps: Known,
  signal: AbortSignal,
  partyId?: string,
): Promise<RebuildResult | undefined> {
  const { warehouseId, isRebuilding } = await readIdentity(deps.db);
  if (isRebuilding) return learn(deps, signal);
  const prefix = partyId === undefined ? undefined : partyPrefix(partyId);
  const found = await learn(deps, signal, { warehouseId, prefix });
  return found.current + found.superseded + found.problemCount === 0 ? undefined : found;
}

/** Party by party. Killed, it begins again, and what it did is known. */
async function learn(
  { db, objects }: Known,
  signal: AbortSignal,
  only: { readonly warehouseId?: string; readonly prefix?: string | undefined } = {},
) {
  const problems: { readonly key: string; readonly message: string }[] = [];
  const sum = { current: 0, superseded: 0, problemCount: 0, problems };
  let newest: Manifest | undefined;
  let party: Manifest[] = [];
  const adopt = async () => {
    const [first] = party;
    if (first === undefined) return;
    const { current, superseded } = await adoptParty(db, first.partyId, party);
    sum.current += current;
    sum.superseded += superseded;
    party = [];
  };
  const read = async (unknown: UnknownObject) => {
    try {
      const manifest = await checkedManifest(unknown, objects, signal);
      if (only.warehouseId !== undefined && manifest.warehouseId !== only.warehouseId)
        return;
      if (party[0]?.partyId !== manifest.partyId) await adopt();
      party.push(manifest);
      if (newest === undefined || manifest.seq > newest.seq) newest = manifest;
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      sum.problemCount += 1;
      if (problems.length < PROBLEMS_KEPT_MAX)
        problems.push({ key: unknown.key, message: errorLine(error) });
    }
  };
  for await (const { unknown } of unknownObjects({ db, objects }, signal, only.prefix))
    for (const one of unknown) await read(one);
  await adopt();
  // What is learned of one party says nothing of how far the others were numbered.
  if (only.prefix === undefined) await finish(db, newest);
  return sum;
}

/**
 * Records one party in one transaction. Where manifests overlap each other, or what is known, the newest holds.
 * @returns how many of its segments are current, and how many are superseded
 */
function adoptParty(db: Database, partyId: string, manifests: readonly Manifest[]) {
  return inTransaction(
    db,
    { action: `record what is published of party ${partyId}` },
    async (tx) => {
      // Neither an export of the party nor another rebuild comes between.
      await lockEach(tx, 'export', [partyId]);
      const keys = manifests.map(({ objectKey }) => objectKey);
      const known = await readKnownObjects(tx, keys);
      const fresh = manifests.filter(({ objectKey }) => !known.has(objectKey));
      const covered = (await readCoverages(tx, [partyId])).get(partyId) ?? [];
      const { held, gone } = chooseNewest([
        ...covered.map((row) => ({ ...row, at: row.checkedAt ?? 0n })),
        ...fresh.map((manifest) => ({ ...manifest, at: manifest.publishedAt })),
      ]);
      const replaced = gone.flatMap((one) => ('coverageId' in one ? one.coverageId : []));
      await supersede(tx, replaced);
      const superseded = gone.filter((one) => 'seq' in one);
      const current = held.filter((one) => 'seq' in one);
      const segmentIds = await insertSegments(tx, [
        ...superseded.map((manifest) =>
          segmentRow(manifest, { rebuilt: true }, 'superseded'),
        ),
        ...current.map((manifest) => segmentRow(manifest, { rebuilt: true })),
      ]);
      const coverage = current.map((manifest) => {
        const range = { ...manifest, checkedAt: manifest.publishedAt };
        return coverageRow(partyId, manifest, range, segmentIds.get(manifest.objectKey));
      });
      await insertCoverage(tx, coverage);
      return { current: current.length, superseded: superseded.length };
    },
  );
}

/** @param newest of all that was learned: what is published next has a higher number, and carries on its lineage */
function finish(db: Database, newest: Manifest | undefined): Promise<void> {
  return inTransaction(db, { action: 'finish the rebuild' }, async (tx) => {
    await sql`update mirror.identity set is_rebuilding = false where is_rebuilding`.execute(
      tx,
    );
    if (newest === undefined) return;
    await sql`update mirror.identity set warehouse_id = ${newest.warehouseId}, publication_seq = ${newest.seq}
      where publication_seq < ${newest.seq}`.execute(tx);
  });
}

interface UnknownObject {
  /** Of its manifest. */
  readonly key: string;
  readonly manifestBytes: bigint;
  /** Of the object itself; undefined where it is not there. */
  readonly bytes: bigint | undefined;
}

interface Known {
  readonly objects: ObjectStore;
  readonly db: Database;
}

/** Those of the given keys that are of a segment, current or not, or of a publication that is not finished. */
async function readKnownObjects(
  db: Database,
  keys: readonly string[],
): Promise<ReadonlySet<string>> {
  const known = sql<{ object_key: string }>`
      select object_key from mirror.segments where object_key = any(${[...keys]}::text[])
      union select jsonb_path_query(plan, '$.**.objectKey') #>> '{}' from mirror.publications where state = 'intent'`;
  const rows = await readRows(db, 'look up which objects are known', known);
  return new Set(rows.map((row) => row.object_key));
}

/** Some at a time, in the order of their keys; with how many keys there were. */
async function* unknownObjects(
  { objects, db }: Known,
  signal: AbortSignal,
  prefix = LEDGER_PREFIX,
) {
  let page: UnknownObject[] = [];
  const lookUp = async () => {
    const listed = page;
    page = [];
    const keys = listed.map(({ key }) => objectKeyOf(key));
    const known = await readKnownObjects(db, keys);
    return {
      listed: listed.length,
      unknown: listed.filter(({ key }) => !known.has(objectKeyOf(key))),
    };
  };
  // An object comes right before its manifest.
  let before = { key: '', bytes: 0n };
  for await (const { key, bytes } of objects.list(prefix, signal)) {
    const isBeside = before.key === objectKeyOf(key);
    if (isManifestKey(key))
      page.push({
        key,
        manifestBytes: bytes,
        bytes: isBeside ? before.bytes : undefined,
      });
    before = { key, bytes };
    if (page.length === KEYS_AT_ONCE) yield await lookUp();
  }
  if (page.length > 0) yield await lookUp();
}

/** @throws PermanentError `OBJECT_MISSING` or `MANIFEST_INVALID` where it cannot be believed */
async function checkedManifest(
  listed: UnknownObject,
  objects: ObjectStore,
  signal: AbortSignal,
) {
  const { key, manifestBytes, bytes } = listed;
  const misplaced = (state: string): PermanentError =>
    new PermanentError(
      `Cannot use the manifest ${key}: ${state}; its range is asked again`,
      {
        code: 'MANIFEST_INVALID',
        meta: { key },
      },
    );
  if (manifestBytes > MANIFEST_BYTES_MAX) throw misplaced('it is too large for one');
  const manifest = await readManifest(objects, key, signal);
  if (
    !key.startsWith(partyPrefix(manifest.partyId)) ||
    manifestKey(manifest.objectKey) !== key
  )
    throw misplaced(`it is of ${manifest.objectKey}`);
  if (bytes !== manifest.objectBytes)
    throw misplaced('its object is not there, or has another size');
  return manifest;
}

/** @returns `notRecorded`: of this mirror, as far as it was looked at */
export async function checkStore(
  known: Known,
  signal: AbortSignal,
): Promise<{ readonly notRecorded: number; readonly problems: readonly Problem[] }> {
  const { warehouseId } = await readIdentity(known.db);
  const problems: Problem[] = [];
  let notRecorded = 0;
  let isAnyKnown = false;
  for await (const { listed, unknown } of unknownObjects(known, signal)) {
    isAnyKnown ||= unknown.length < listed;
    for (const { key } of unknown) {
      const isRead = notRecorded < OWNERS_READ_MAX;
      // None where the manifest was taken away since it was listed, or is none.
      const manifest = isRead
        ? await readManifest(known.objects, key, signal).catch(refused)
        : undefined;
      if (manifest === undefined || manifest.warehouseId === warehouseId)
        notRecorded += 1;
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
