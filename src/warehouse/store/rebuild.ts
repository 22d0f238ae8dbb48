/**
 * Takes over published objects that the database does not know. A lost database comes
 * back from their manifests alone; a database that was restored from a backup learns what
 * was published since. What no manifest records is requested from the source again.
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
import type { Manifest } from '../../ledger/manifest.ts';
import { partyPrefix } from '../../ledger/object-keys.ts';
import { builder } from '../../postgres/builder.ts';
import type { Database } from '../../postgres/database.ts';
import { readIdentity } from '../../postgres/identity.ts';
import { execute } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';
import { inTransaction } from '../../postgres/transaction.ts';
import { chooseNewest } from '../load-plan.ts';
import {
  listUnknownObjects,
  readKnownObjects,
  readUnknownManifest,
  type StoreAndCatalog,
} from './unknown-objects.ts';

/** How many manifests that cannot be used the evidence lists. All of them are counted. */
const LISTED_MAX = 100;

/** A manifest that cannot be used. */
export interface ManifestProblem {
  readonly key: string;
  readonly message: string;
}

/** What a rebuild took over from the store. */
export interface RebuildResult {
  /** Segments that are current now. */
  readonly current: number;
  /** Segments that newer ones replace. */
  readonly superseded: number;
  readonly problemCount: number;
  readonly problems: readonly ManifestProblem[];
}

/** Which manifests a rebuild takes over. */
interface AdoptionLimits {
  /** Only those that this lineage published; absent: those of any mirror. */
  readonly warehouseId?: string;
  /** Only those below this prefix; absent: all. */
  readonly prefix?: string | undefined;
}

/**
 * Rebuilds an empty database from what any mirror has published in the store, or goes on
 * with a rebuild that was killed.
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
 * Takes over what a killed rebuild has not reached yet, and what was published after the
 * backup that the database was restored from. It must run before anything is requested
 * from the source or removed from the store: the source would be asked for known ranges
 * again, and what it no longer serves would be lost.
 * @param partyId limits it to the ledger that is about to be exported; absent: all
 * @returns undefined if the database knows everything that this mirror has published
 */
export async function adoptUnknownManifests(
  catalog: StoreAndCatalog,
  signal: AbortSignal,
  partyId?: string,
): Promise<RebuildResult | undefined> {
  const { warehouseId, isRebuilding } = await readIdentity(catalog.db);
  if (isRebuilding) return adoptManifests(catalog, signal);
  const prefix = partyId === undefined ? undefined : partyPrefix(partyId);
  const result = await adoptManifests(catalog, signal, { warehouseId, prefix });
  const changes = result.current + result.superseded + result.problemCount;
  return changes === 0 ? undefined : result;
}

/**
 * Works party by party. A killed rebuild begins again, and knows what it has already
 * recorded.
 */
async function adoptManifests(
  catalog: StoreAndCatalog,
  signal: AbortSignal,
  limits: AdoptionLimits = {},
): Promise<RebuildResult> {
  const { db, objects } = catalog;
  const adoption = new Adoption(db);
  for await (const page of listUnknownObjects(catalog, signal, limits.prefix)) {
    for (const unknown of page.unknown) {
      try {
        const manifest = await readUnknownManifest(unknown, objects, signal);
        const isForeign =
          limits.warehouseId !== undefined &&
          manifest.warehouseId !== limits.warehouseId;
        if (!isForeign) await adoption.add(manifest);
      } catch (error) {
        if (!(error instanceof PermanentError)) throw error;
        adoption.addProblem(unknown.key, error);
      }
    }
  }
  await adoption.writeParty();

  // The manifests of one party do not show how far the others were numbered.
  if (limits.prefix === undefined) await finishRebuild(db, adoption.newest);
  return adoption.result();
}

/**
 * Gathers manifests, which arrive party by party, and records each party in one
 * transaction.
 */
class Adoption {
  readonly #db: Database;
  #party: Manifest[] = [];
  #newest: Manifest | undefined;
  #current = 0;
  #superseded = 0;
  #problemCount = 0;
  readonly #problems: ManifestProblem[] = [];

  constructor(db: Database) {
    this.#db = db;
  }

  /** The manifest with the highest number so far. */
  get newest(): Manifest | undefined {
    return this.#newest;
  }

  async add(manifest: Manifest): Promise<void> {
    if (this.#party[0]?.partyId !== manifest.partyId) await this.writeParty();
    this.#party.push(manifest);
    if (this.#newest === undefined || manifest.seq > this.#newest.seq) {
      this.#newest = manifest;
    }
  }

  addProblem(key: string, error: PermanentError): void {
    this.#problemCount += 1;
    if (this.#problems.length >= LISTED_MAX) return;
    this.#problems.push({ key, message: errorLine(error) });
  }

  /** Records the party whose manifests were added last. */
  async writeParty(): Promise<void> {
    const manifests = this.#party;
    this.#party = [];
    const [first] = manifests;
    if (first === undefined) return;
    const { current, superseded } = await adoptParty(
      this.#db,
      first.partyId,
      manifests,
    );
    this.#current += current;
    this.#superseded += superseded;
  }

  result(): RebuildResult {
    return {
      current: this.#current,
      superseded: this.#superseded,
      problemCount: this.#problemCount,
      problems: this.#problems,
    };
  }
}

/** How many segments of a party were recorded. */
interface AdoptedCounts {
  readonly current: number;
  readonly superseded: number;
}

/**
 * Records the manifests of one party in one transaction. If ranges overlap each other or
 * known ranges, the newest is kept.
 */
function adoptParty(
  db: Database,
  partyId: string,
  manifests: readonly Manifest[],
): Promise<AdoptedCounts> {
  const action = `record what is published of party ${partyId}`;
  return inTransaction(db, { action }, async (tx) => {
    // The lock keeps an export of the party, and another rebuild, out until the COMMIT.
    await lockEach(tx, 'export', [partyId]);
    const keys = manifests.map(({ objectKey }) => objectKey);
    const known = await readKnownObjects(tx, keys);
    const unknown = manifests.filter(({ objectKey }) => !known.has(objectKey));
    const covered = (await readCoverages(tx, [partyId])).get(partyId) ?? [];
    const { kept, dropped } = chooseNewest([
      ...covered.map((row) => ({ ...row, at: row.checkedAt ?? 0n })),
      ...unknown.map((manifest) => ({ ...manifest, at: manifest.publishedAt })),
    ]);

    const replaced = dropped.flatMap((one) =>
      'coverageId' in one ? [one.coverageId] : [],
    );
    await supersede(tx, replaced);

    const superseded = dropped.filter((one) => 'seq' in one);
    const current = kept.filter((one) => 'seq' in one);
    const evidence = { rebuilt: true };
    const segmentIds = await insertSegments(tx, [
      ...superseded.map((manifest) =>
        segmentRow(manifest, evidence, 'superseded'),
      ),
      ...current.map((manifest) => segmentRow(manifest, evidence)),
    ]);
    const coverage = current.map((manifest) => {
      const range = { ...manifest, checkedAt: manifest.publishedAt };
      const segmentId = segmentIds.get(manifest.objectKey);
      return coverageRow(partyId, manifest, range, segmentId);
    });
    await insertCoverage(tx, coverage);
    return { current: current.length, superseded: superseded.length };
  });
}

/**
 * Ends a rebuild, and continues the lineage of the newest manifest: what is published
 * next gets a higher number.
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
    const { warehouseId, seq } = newest;
    const continueLineage = builder
      .updateTable('mirror.identity')
      .set({ warehouse_id: warehouseId, publication_seq: sql`${seq}::bigint` })
      .where('publication_seq', '<', sql<bigint>`${seq}::bigint`);
    await execute(tx, action, continueLineage);
  });
}
