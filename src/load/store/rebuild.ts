/**
 * The manifests in the store are compared with what the database knows: a lost database comes back from them alone, and
 * one that went back to a backup learns what was published since. What no manifest says is asked of the source again.
 */
import { sql } from 'kysely';
import { errorLine, PermanentError } from '../../core/errors.ts';
import { coverageRow, insertCoverage, readCoverages, supersede } from '../../export/store/coverage-rows.ts';
import { lockEach } from '../../export/store/leases.ts';
import { insertSegments, segmentRow } from '../../export/store/segment-rows.ts';
import type { Manifest } from '../../ledger/objects/manifest.ts';
import { partyPrefix } from '../../ledger/objects/object-keys.ts';
import type { Database } from '../../postgres/database.ts';
import { readIdentity } from '../../postgres/identity.ts';
import { inTransaction, readRows } from '../../postgres/transaction.ts';
import { chooseNewest } from '../plan.ts';
import { readKnownObjects } from './segment-records.ts';
import { checkedManifest, type Known, type UnknownObject, unknownObjects } from './unknown-objects.ts';

const PROBLEMS_KEPT_MAX = 100;

export type RebuildResult = Readonly<Awaited<ReturnType<typeof learn>>>;

/** From what any mirror has published; undefined where the database is not empty, save by a rebuild that was killed. */
export async function rebuildIfEmpty(deps: Known, signal: AbortSignal): Promise<RebuildResult | undefined> {
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
export async function catchUpWithStore(
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
      if (only.warehouseId !== undefined && manifest.warehouseId !== only.warehouseId) return;
      if (party[0]?.partyId !== manifest.partyId) await adopt();
      party.push(manifest);
      if (newest === undefined || manifest.seq > newest.seq) newest = manifest;
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      sum.problemCount += 1;
      if (problems.length < PROBLEMS_KEPT_MAX) problems.push({ key: unknown.key, message: errorLine(error) });
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
  return inTransaction(db, { action: `record what is published of party ${partyId}` }, async (tx) => {
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
      ...superseded.map((manifest) => segmentRow(manifest, { rebuilt: true }, 'superseded')),
      ...current.map((manifest) => segmentRow(manifest, { rebuilt: true })),
    ]);
    const coverage = current.map((manifest) => {
      const range = { ...manifest, checkedAt: manifest.publishedAt };
      return coverageRow(partyId, manifest, range, segmentIds.get(manifest.objectKey));
    });
    await insertCoverage(tx, coverage);
    return { current: current.length, superseded: superseded.length };
  });
}

/** @param newest of all that was learned: what is published next has a higher number, and carries on its lineage */
function finish(db: Database, newest: Manifest | undefined): Promise<void> {
  return inTransaction(db, { action: 'finish the rebuild' }, async (tx) => {
    await sql`update mirror.identity set is_rebuilding = false where is_rebuilding`.execute(tx);
    if (newest === undefined) return;
    await sql`update mirror.identity set warehouse_id = ${newest.warehouseId}, publication_seq = ${newest.seq}
      where publication_seq < ${newest.seq}`.execute(tx);
  });
}
