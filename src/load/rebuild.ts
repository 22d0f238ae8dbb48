/**
 * The manifests in the store are compared with what the database knows: a lost database comes back from them alone, and
 * one that went back to a backup learns what was published since. What no manifest says is asked of the source again.
 */
import { errorLine, PermanentError } from '../core/errors.ts';
import type { Manifest } from '../ledger/objects/manifest.ts';
import { partyPrefix } from '../ledger/objects/object-keys.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import type { RebuildStore } from './store/rebuild-store.ts';
import { checkedManifest, type UnknownObject, unknownObjects } from './unknown-objects.ts';

const PROBLEMS_KEPT_MAX = 100;

export interface RebuildResult {
  readonly current: number;
  readonly superseded: number;
  readonly problemCount: number;
  readonly problems: readonly { readonly key: string; readonly message: string }[];
}

export interface RebuildDeps {
  readonly repository: RebuildStore;
  readonly objects: ObjectStore;
}

/** From what any mirror has published; undefined where the database is not empty, save by a rebuild that was killed. */
export async function rebuildIfEmpty(
  deps: RebuildDeps,
  signal: AbortSignal,
): Promise<RebuildResult | undefined> {
  return (await deps.repository.beginIfEmpty()) ? learn(deps, signal) : undefined;
}

/**
 * Before anything is asked of the source or removed from the store: what a killed rebuild has not come to yet, and what
 * was published after the backup that the database went back to, would be asked for as if nobody knew it; and what the
 * source serves no more would be lost.
 * @param partyId whose ledger is to be asked for; absent: all
 * @returns undefined where the database knows all that this mirror has published
 */
export async function catchUpWithStore(
  deps: RebuildDeps,
  signal: AbortSignal,
  partyId?: string,
): Promise<RebuildResult | undefined> {
  const { warehouseId, isRebuilding } = await deps.repository.lineage();
  if (isRebuilding) return learn(deps, signal);
  const prefix = partyId === undefined ? undefined : partyPrefix(partyId);
  const found = await learn(deps, signal, { warehouseId, prefix });
  return found.current + found.superseded + found.problemCount === 0 ? undefined : found;
}

/** Party by party. Killed, it begins again, and what it did is known. */
async function learn(
  { repository, objects }: RebuildDeps,
  signal: AbortSignal,
  only: { readonly warehouseId?: string; readonly prefix?: string | undefined } = {},
): Promise<RebuildResult> {
  const sum = { current: 0, superseded: 0, problemCount: 0 };
  const problems: { key: string; message: string }[] = [];
  let newest: Manifest | undefined;
  let party: Manifest[] = [];
  const adopt = async (): Promise<void> => {
    const [first] = party;
    if (first === undefined) return;
    const { current, superseded } = await repository.adopt(first.partyId, party);
    sum.current += current;
    sum.superseded += superseded;
    party = [];
  };
  const read = async (unknown: UnknownObject): Promise<void> => {
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
  for await (const { unknown } of unknownObjects({ repository, objects }, signal, only.prefix))
    for (const one of unknown) await read(one);
  await adopt();
  // What is learned of one party says nothing of how far the others were numbered.
  if (only.prefix === undefined) await repository.finish(newest);
  return { ...sum, problems };
}
