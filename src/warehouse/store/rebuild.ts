/**
 * Takes over published objects that the database does not know. A lost database is
 * rebuilt from their manifests and from the record of the ranges that no manifest
 * describes (range-records.ts). A database restored from a backup adopts the objects
 * published since that backup. Ranges found in neither place are requested from the
 * source again.
 */
import { sql } from 'kysely';
import { errorCode, errorLine, PermanentError } from '../../errors/errors.ts';
import { isStoreFault } from '../../errors/faults.ts';
import {
  type Coverage,
  coverageRow,
  insertCoverage,
  readCoverages,
  supersede,
} from '../../catalog/coverage-rows.ts';
import { lockEach } from '../../catalog/leases.ts';
import { insertSegments, segmentRow } from '../../catalog/segment-rows.ts';
import { type Manifest, manifestJson } from '../../ledger/manifest.ts';
import { partyPrefix } from '../../ledger/object-keys.ts';
import { RANGES_KEY } from '../../ledger/range-record.ts';
import { builder } from '../../postgres/builder.ts';
import type { Database } from '../../postgres/database.ts';
import { readIdentity } from '../../postgres/identity.ts';
import { execute } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';
import { inTransaction } from '../../postgres/transaction.ts';
import { chooseNewest } from '../newest-ranges.ts';
import { adoptRanges } from './range-records.ts';
import {
  listUnknownObjects,
  readKnownObjects,
  readUnknownManifest,
  type StoreAndCatalog,
  type UnknownObject,
  type UnknownPage,
} from './unknown-objects.ts';

/**
 * Maximum number of unusable manifests that the evidence lists; all of them are counted.
 */
const LISTED_MAX = 100;

/** How many manifests are read concurrently. */
const READ_AT_ONCE = 16;
/**
 * How many manifests are collected before their parties are recorded in one transaction.
 * A transaction for each party would wait for the flush of Postgres' log each time.
 */
const MANIFESTS_PER_WRITE = 100;
/**
 * Maximum number of other mirrors' manifests that are read before the comparison stops.
 */
const FOREIGN_READ_MAX = 1_000;

/** A manifest that cannot be used. */
export interface ManifestProblem {
  readonly key: string;
  readonly message: string;
}

/** The segments and ranges that a rebuild took over from the store. */
export interface RebuildResult {
  /** Number of segments that were taken over as current. */
  readonly current: number;
  /** Number of segments that were taken over as superseded by newer ones. */
  readonly superseded: number;
  /**
   * Number of changed ranges that no manifest describes, or that a manifest describes
   * differently.
   */
  readonly ranges: number;
  readonly problemCount: number;
  readonly problems: readonly ManifestProblem[];
}

/** Limits which manifests a rebuild takes over. */
interface AdoptionLimits {
  /**
   * If set, only manifests of this lineage are taken over; if absent, those of any
   * mirror.
   */
  readonly warehouseId?: string;
  /**
   * If set, only manifests of this party are taken over; if absent, those of all
   * parties.
   */
  readonly partyId?: string | undefined;
}

/**
 * Rebuilds an empty database from the objects that any mirror has published in the
 * store, or continues a rebuild that was killed.
 * @returns undefined if the database is not empty
 */
export async function rebuildIfEmpty(
  catalog: StoreAndCatalog,
  signal: AbortSignal,
): Promise<RebuildResult | undefined> {
  const begin = statement()`
    update mirror.identity set is_rebuilding = true
    where is_rebuilding or not exists (select from mirror.segments)
      and not exists (select from mirror.coverage)`;
  const begun = await execute(catalog.db, 'begin to rebuild', begin);
  return begun > 0n ? adoptManifests(catalog, signal) : undefined;
}

/**
 * Takes over the manifests that an interrupted rebuild did not reach, and those published
 * after the backup from which the database was restored. This must run before anything is
 * requested from the source or removed from the store: otherwise known ranges would be
 * requested again, and the ranges that the source no longer serves would be lost.
 * @param partyId the party that is about to be exported; if absent, all parties
 * @returns undefined if the database already knows everything that this mirror has
 *   published
 */
export async function adoptUnknownManifests(
  catalog: StoreAndCatalog,
  signal: AbortSignal,
  partyId?: string,
): Promise<RebuildResult | undefined> {
  const { warehouseId, isRebuilding } = await readIdentity(catalog.db);
  if (isRebuilding) return adoptManifests(catalog, signal);
  const result = await adoptManifests(catalog, signal, {
    warehouseId,
    partyId,
  });
  const { current, superseded, ranges, problemCount } = result;
  const changes = current + superseded + ranges + problemCount;
  return changes === 0 ? undefined : result;
}

/**
 * Takes over manifests, a batch of whole parties at a time. An interrupted rebuild starts
 * again from the beginning and skips the manifests that it has already recorded.
 */
async function adoptManifests(
  catalog: StoreAndCatalog,
  signal: AbortSignal,
  limits: AdoptionLimits = {},
): Promise<RebuildResult> {
  const { db, objects } = catalog;
  const adoption = new Adoption(db);
  const { partyId } = limits;
  const prefix = partyId === undefined ? undefined : partyPrefix(partyId);
  const found = listUnknownObjects(catalog, signal, prefix);
  const manifests = readManifests(found, objects, signal);
  try {
    await collect(manifests, limits, adoption);
  } catch (error) {
    await adoption.writeWholeParties();
    throw error;
  }
  await adoption.writeAll();
  const ranges = await adoptRanges(catalog, signal, limits).catch(
    (error: unknown) => {
      const isDamaged = errorCode(error) === 'RANGES_INVALID';
      if (!isDamaged || !(error instanceof PermanentError)) throw error;
      adoption.addProblem(RANGES_KEY, error);
      return 0;
    },
  );

  // One party's manifests do not reveal the highest publication number across all
  // parties.
  if (partyId === undefined) await finishRebuild(db, adoption.newest);
  return { ...adoption.result(), ranges };
}

/** Adds the manifests within the limits to the adoption, and the rest to its problems. */
async function collect(
  manifests: AsyncIterable<ReadManifest>,
  limits: AdoptionLimits,
  adoption: Adoption,
): Promise<void> {
  let foreign = 0;
  for await (const { key, read } of manifests) {
    if (read instanceof PermanentError) {
      adoption.addProblem(key, read);
      continue;
    }
    const { warehouseId = read.warehouseId } = limits;
    if (read.warehouseId === warehouseId) {
      await adoption.add(read);
      continue;
    }
    foreign += 1;
    if (foreign < FOREIGN_READ_MAX) continue;
    adoption.addProblem(key, tooManyForeign(read));
    break;
  }
}

/** A manifest that was read, or the error that explains why it cannot be used. */
interface ReadManifest {
  readonly key: string;
  readonly read: Manifest | PermanentError;
}

/**
 * Reads several manifests at a time, and yields them sorted by key.
 * @throws the store's error if it refuses a read, because a rebuild that skipped the
 *   object would look complete
 */
async function* readManifests(
  pages: AsyncIterable<UnknownPage>,
  objects: StoreAndCatalog['objects'],
  signal: AbortSignal,
): AsyncGenerator<ReadManifest> {
  const readOne = async (unknown: UnknownObject): Promise<ReadManifest> => {
    const { key } = unknown;
    try {
      return { key, read: await readUnknownManifest(unknown, objects, signal) };
    } catch (error) {
      const isOfManifest =
        error instanceof PermanentError && !isStoreFault(error);
      if (!isOfManifest) throw error;
      return { key, read: error };
    }
  };
  for await (const { unknown } of pages) {
    for (let at = 0; at < unknown.length; at += READ_AT_ONCE) {
      const some = unknown.slice(at, at + READ_AT_ONCE);
      // If a read fails, the manifests read before it are taken over first; then the
      // failure ends the rebuild.
      for (const one of await Promise.allSettled(some.map(readOne))) {
        if (one.status === 'rejected') throw one.reason;
        yield one.value;
      }
    }
  }
}

/**
 * Returns the error for a store in which another mirror publishes, or has published,
 * under the same prefix. Only an operator can resolve that.
 */
function tooManyForeign({ warehouseId }: Manifest): PermanentError {
  return new PermanentError(
    `Cannot compare the store with the database: ${FOREIGN_READ_MAX} objects are of ` +
      `other mirrors, such as ${warehouseId}; remove those, or set OBJECT_STORE_URL`,
    { code: 'OBJECT_FOREIGN', meta: { warehouseId } },
  );
}

/**
 * Collects manifests, which arrive party by party, and records several parties in one
 * transaction.
 */
class Adoption {
  readonly #db: Database;
  /** The manifests that are not recorded yet, by party; the last party may lack some. */
  readonly #parties = new Map<string, Manifest[]>();
  #collected = 0;
  #newest: Manifest | undefined;
  #current = 0;
  #superseded = 0;
  #problemCount = 0;
  readonly #problems: ManifestProblem[] = [];

  constructor(db: Database) {
    this.#db = db;
  }

  /** The manifest with the highest publication number so far. */
  get newest(): Manifest | undefined {
    return this.#newest;
  }

  async add(manifest: Manifest): Promise<void> {
    const { partyId, seq } = manifest;
    const ofParty = this.#parties.get(partyId);
    if (ofParty !== undefined) ofParty.push(manifest);
    else {
      if (this.#collected >= MANIFESTS_PER_WRITE) await this.writeAll();
      this.#parties.set(partyId, [manifest]);
    }
    this.#collected += 1;
    if (this.#newest === undefined || seq > this.#newest.seq) {
      this.#newest = manifest;
    }
  }

  addProblem(key: string, error: PermanentError): void {
    this.#problemCount += 1;
    if (this.#problems.length >= LISTED_MAX) return;
    this.#problems.push({ key, message: errorLine(error) });
  }

  /** Records the parties whose manifests have all been added. */
  async writeWholeParties(): Promise<void> {
    const last = [...this.#parties.keys()].at(-1);
    if (last !== undefined) this.#parties.delete(last);
    await this.writeAll();
  }

  /** Records all parties that were added. */
  async writeAll(): Promise<void> {
    const parties = [...this.#parties];
    this.#parties.clear();
    this.#collected = 0;
    if (parties.length === 0) return;
    const { current, superseded } = await adoptParties(this.#db, parties);
    this.#current += current;
    this.#superseded += superseded;
  }

  result(): Omit<RebuildResult, 'ranges'> {
    return {
      current: this.#current,
      superseded: this.#superseded,
      problemCount: this.#problemCount,
      problems: this.#problems,
    };
  }
}

/** Number of segments recorded for parties. */
interface AdoptedCounts {
  readonly current: number;
  readonly superseded: number;
}

/** Records the manifests of several parties in one transaction. */
function adoptParties(
  db: Database,
  parties: readonly (readonly [partyId: string, readonly Manifest[]])[],
): Promise<AdoptedCounts> {
  const partyIds = parties.map(([partyId]) => partyId);
  const action = `record what is published of ${describeParties(partyIds)}`;
  return inTransaction(db, { action }, async (tx) => {
    // The lock blocks an export of the parties, or a second rebuild, until the
    // transaction commits.
    await lockEach(tx, 'export', partyIds);
    const keys = parties.flatMap(([, manifests]) =>
      manifests.map(({ objectKey }) => objectKey),
    );
    const known = await readKnownObjects(tx, keys);
    const covered = await readCoverages(tx, partyIds);
    const changes = parties.map(([partyId, manifests]) => {
      const unknown = manifests.filter((one) => !known.has(one.objectKey));
      return chooseSegments(covered.get(partyId) ?? [], unknown);
    });

    await supersede(
      tx,
      changes.flatMap(({ replaced }) => replaced),
    );
    const superseded = changes.flatMap((change) => change.superseded);
    const current = changes.flatMap((change) => change.current);
    const evidence = { rebuilt: true };
    const segmentIds = await insertSegments(tx, [
      ...superseded.map((manifest) =>
        segmentRow(manifest, evidence, 'superseded'),
      ),
      ...current.map((manifest) => segmentRow(manifest, evidence)),
    ]);
    const coverage = current.map((manifest) => {
      const { partyId, checkedAt = manifest.publishedAt } = manifest;
      const range = { ...manifest, checkedAt };
      const segmentId = segmentIds.get(manifest.objectKey);
      return coverageRow(partyId, manifest, range, segmentId);
    });
    await insertCoverage(tx, coverage);
    return { current: current.length, superseded: superseded.length };
  });
}

function describeParties([first, ...others]: readonly string[]): string {
  return `party ${first}${others.length > 0 ? ` and ${others.length} more` : ''}`;
}

/** What changes for a party whose published segments become known. */
interface SegmentChoice {
  readonly current: readonly Manifest[];
  readonly superseded: readonly Manifest[];
  /** The known ranges that a newer segment replaces. */
  readonly replaced: readonly bigint[];
}

/**
 * Decides which of a party's segments are current. If ranges overlap each other or known
 * ranges, the newest range is kept.
 */
function chooseSegments(
  covered: readonly Coverage[],
  unknown: readonly Manifest[],
): SegmentChoice {
  const { kept, dropped } = chooseNewest([
    ...covered.map((row) => ({ ...row, at: row.checkedAt ?? 0n })),
    ...unknown.map((manifest) => ({ ...manifest, at: manifest.publishedAt })),
  ]);
  return {
    current: kept.filter((one) => 'seq' in one),
    superseded: dropped.filter((one) => 'seq' in one),
    replaced: dropped.flatMap((one) =>
      'coverageId' in one ? [one.coverageId] : [],
    ),
  };
}

/**
 * Ends a rebuild and continues the lineage of the newest manifest: the next publication
 * gets a higher number, in the latest epoch of the source's chain. If the database knows
 * nothing about the source's release yet, it adopts what that manifest recorded about it.
 */
function finishRebuild(
  db: Database,
  newest: Manifest | undefined,
): Promise<void> {
  const action = 'finish the rebuild';
  return inTransaction(db, { action }, async (tx) => {
    const end = builder
      .updateTable('mirror.identity')
      .set({ is_rebuilding: false })
      .where('is_rebuilding', '=', true);
    await execute(tx, action, end);
    if (newest === undefined) return;
    const { warehouseId, seq, epoch = 1 } = newest;
    const { release = {} } = manifestJson(newest);
    const learn = statement()`
      update mirror.source_state set profile = ${JSON.stringify(release)}::jsonb
      where profile = '{}'`;
    await execute(tx, action, learn);
    const networks = statement()`
      insert into mirror.networks (epoch) values (${epoch}) on conflict do nothing`;
    await execute(tx, action, networks);
    const continueLineage = builder
      .updateTable('mirror.identity')
      .set({ warehouse_id: warehouseId, publication_seq: sql`${seq}::bigint` })
      .where('publication_seq', '<', sql<bigint>`${seq}::bigint`);
    await execute(tx, action, continueLineage);
  });
}
