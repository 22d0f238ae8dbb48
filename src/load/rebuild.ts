/**
 * A lost database comes back from the objects alone: every published object has a manifest beside it,
 * and the manifests say together what the manifest table said.
 */
import { errorLine, PermanentError } from '../core/errors.ts';
import { decodeManifest, type Manifest } from '../ledger/manifest.ts';
import { isManifestKey, manifestKey } from '../ledger/object-keys.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import type { RebuildBooks } from './ports.ts';

const MANIFEST_BYTES_MAX = 4 * 2 ** 20;
const PROBLEMS_KEPT_MAX = 100;
const PREFIX = 'ledger/';

export interface RebuildResult {
  readonly current: number;
  readonly superseded: number;
  readonly problemCount: number;
  readonly problems: readonly { readonly key: string; readonly message: string }[];
}

export interface RebuildDeps {
  readonly books: RebuildBooks;
  readonly objects: ObjectStore;
}

/** Does nothing and resolves with undefined where the manifest table has segments. */
export async function rebuildIfEmpty(
  deps: RebuildDeps,
  signal: AbortSignal,
): Promise<RebuildResult | undefined> {
  return (await deps.books.isEmpty()) ? rebuildManifests(deps, signal) : undefined;
}

/**
 * Reads all manifests, party by party, and records what they say. Where ranges overlap, the newest
 * publication is current; what nothing newer covers stays uncovered, and is asked again one day.
 */
export async function rebuildManifests(deps: RebuildDeps, signal: AbortSignal): Promise<RebuildResult> {
  const problems: { key: string; message: string }[] = [];
  let [current, superseded, problemCount] = [0, 0, 0];
  for await (const sizes of partyObjects(deps.objects, signal)) {
    const manifests: Manifest[] = [];
    for (const key of sizes.keys()) {
      if (!isManifestKey(key)) continue;
      try {
        manifests.push(await readManifest(deps.objects, key, sizes, signal));
      } catch (error) {
        if (!(error instanceof PermanentError)) throw error;
        problemCount += 1;
        if (problems.length < PROBLEMS_KEPT_MAX) problems.push({ key, message: errorLine(error) });
      }
    }
    const sorted = newestFirst(manifests);
    await deps.books.adopt(sorted.current, sorted.superseded);
    current += sorted.current.length;
    superseded += sorted.superseded.length;
  }
  return { current, superseded, problemCount, problems };
}

/** Sizes by key, one map a party: keys come in order, and begin with the party. */
async function* partyObjects(
  objects: ObjectStore,
  signal: AbortSignal,
): AsyncGenerator<ReadonlyMap<string, bigint>> {
  let party = '';
  let sizes = new Map<string, bigint>();
  for await (const { key, bytes } of objects.list(PREFIX, signal)) {
    const folder = key.split('/', 2).join('/');
    if (folder !== party && sizes.size > 0) {
      yield sizes;
      sizes = new Map();
    }
    party = folder;
    sizes.set(key, bytes);
  }
  if (sizes.size > 0) yield sizes;
}

async function readManifest(
  objects: ObjectStore,
  key: string,
  sizes: ReadonlyMap<string, bigint>,
  signal: AbortSignal,
): Promise<Manifest> {
  if ((sizes.get(key) ?? 0n) > BigInt(MANIFEST_BYTES_MAX)) throw misplaced(key, 'it is too large for one');
  const content = Buffer.concat(await (await objects.read(key, signal)).toArray());
  const manifest = decodeManifest(content, key);
  if (manifestKey(manifest.objectKey) !== key) throw misplaced(key, `it is of ${manifest.objectKey}`);
  if (sizes.get(manifest.objectKey) !== manifest.objectBytes) {
    throw misplaced(key, 'its object is not there, or has another size');
  }
  return manifest;
}

function misplaced(key: string, state: string): PermanentError {
  return new PermanentError(`Cannot use the manifest ${key}: ${state}; its range is asked again`, {
    code: 'MANIFEST_INVALID',
    meta: { key },
  });
}

function newestFirst(manifests: readonly Manifest[]): {
  readonly current: readonly Manifest[];
  readonly superseded: readonly Manifest[];
} {
  const current: Manifest[] = [];
  const superseded: Manifest[] = [];
  for (const manifest of manifests.toSorted((a, b) => (a.seq < b.seq ? 1 : -1))) {
    const isCovered = current.some((newer) => overlap(manifest, newer));
    (isCovered ? superseded : current).push(manifest);
  }
  return { current, superseded };
}

function overlap(a: Manifest, b: Manifest): boolean {
  const sameAsset = a.assetId === null || b.assetId === null || a.assetId === b.assetId;
  return sameAsset && a.from < b.to && b.from < a.to;
}
