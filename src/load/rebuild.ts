/**
 * A lost database comes back from the store alone: every published object has a manifest beside it, and
 * the records of coverage say what is in no manifest.
 */
import { errorLine, PermanentError } from '../core/errors.ts';
import { isHexId } from '../core/ids.ts';
import { readRecordKey, recordsOf } from '../ledger/objects/coverage-record.ts';
import { type Manifest, readManifest } from '../ledger/objects/manifest.ts';
import { isManifestKey, manifestKey, partyName } from '../ledger/objects/object-keys.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import { readRecords, type RecordedParty } from './coverage-records.ts';
import type { Lineage, RebuildStore } from './store/rebuild-store.ts';
import { reconcile } from './reconcile.ts';

const MANIFEST_BYTES_MAX = 4 * 2 ** 20;
const PROBLEMS_KEPT_MAX = 100;
const PREFIX = 'ledger/';
/** Behind every name. */
const NAMES_END = '~';
const PARTY_OF = /^ledger\/party=([^/]+)\//;

export interface RebuildResult {
  readonly current: number;
  readonly superseded: number;
  readonly rangesWithoutEntries: number;
  readonly problemCount: number;
  readonly problems: readonly { readonly key: string; readonly message: string }[];
}

export interface RebuildDeps {
  readonly repository: RebuildStore;
  readonly objects: ObjectStore;
}

/** Does nothing and resolves with undefined where anything is published or covered, save by a rebuild that was killed. */
export async function rebuildIfEmpty(
  deps: RebuildDeps,
  signal: AbortSignal,
): Promise<RebuildResult | undefined> {
  const isWanted = (await deps.repository.isEmpty()) || (await deps.repository.lineage()).isRebuilding;
  return isWanted ? rebuild(deps, signal) : undefined;
}

/**
 * Before anything is asked of the source or removed from the store: what a killed rebuild has not come to yet, and what
 * was published after the backup that the database went back to, would be asked for as if nobody knew it; and what the
 * source serves no more would be lost.
 * @returns undefined where the database knows all that the store records
 */
export async function catchUpWithStore(
  deps: RebuildDeps,
  signal: AbortSignal,
  lineage?: Lineage,
): Promise<RebuildResult | undefined> {
  const { warehouseId, seq, isRebuilding } = lineage ?? (await deps.repository.lineage());
  if (isRebuilding) return rebuild(deps, signal);
  if (!(await isBehind(warehouseId, seq, deps.objects, signal))) return undefined;
  return rebuild(deps, signal, warehouseId);
}

/**
 * Catches up without listing the store's records for each export.
 * @returns takes a comparison that is no older than `maxAgeMs`, where the database has not gone back since
 */
export function watchStore(
  deps: RebuildDeps,
): (signal: AbortSignal, maxAgeMs: number) => Promise<RebuildResult | undefined> {
  let compared: { readonly warehouseId: string; readonly seq: bigint; readonly atMs: number } | undefined;
  return async (signal, maxAgeMs) => {
    const atMs = performance.now();
    const lineage = await deps.repository.lineage();
    const { warehouseId, seq, isRebuilding } = lineage;
    const isAhead = compared?.warehouseId === warehouseId && compared.seq <= seq;
    if (compared && isAhead && !isRebuilding && atMs - compared.atMs < maxAgeMs) {
      compared = { ...compared, seq };
      return undefined;
    }
    const found = await catchUpWithStore(deps, signal, lineage);
    compared = found === undefined ? { warehouseId, seq, atMs } : undefined;
    return found;
  };
}

/** The store holds a record of this lineage with a number that the database has not given yet. */
async function isBehind(
  warehouseId: string,
  seq: bigint,
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<boolean> {
  for await (const { key } of objects.list(recordsOf(warehouseId), signal)) {
    if ((readRecordKey(key)?.seq ?? 0n) > seq) return true;
  }
  return false;
}

/**
 * Party by party: its manifests, and what of its coverage is recorded. Killed, it begins again, and finds what it did.
 * @param warehouseId given where only what this warehouse published counts
 */
async function rebuild(
  { repository, objects }: RebuildDeps,
  signal: AbortSignal,
  warehouseId?: string,
): Promise<RebuildResult> {
  const problems: { key: string; message: string }[] = [];
  const sum = { current: 0, superseded: 0, rangesWithoutEntries: 0, problemCount: 0 };
  const onProblem = (key: string, error: PermanentError): void => {
    sum.problemCount += 1;
    if (problems.length < PROBLEMS_KEPT_MAX) problems.push({ key, message: errorLine(error) });
  };
  await repository.begin();
  const records = await readRecords(objects, onProblem, signal, warehouseId);
  let { lineage } = records;
  const sources = [...records.parties.map(partsOf), partyObjects(objects, signal)];
  for await (const parts of joinParties(sources)) {
    const [recorded] = parts.flatMap((part) => part.recorded ?? []).toSorted((a, b) => Number(b.seq - a.seq));
    const sizes = new Map(parts.flatMap((part) => [...(part.sizes ?? [])]));
    const found = await readManifests(objects, sizes, onProblem, signal);
    const manifests = found.filter((one) => warehouseId === undefined || one.warehouseId === warehouseId);
    const partyId = recorded?.partyId ?? manifests[0]?.partyId;
    if (partyId === undefined) continue;
    const party = reconcile(partyId, manifests, recorded);
    await repository.adopt(party);
    for (const manifest of manifests) if (manifest.seq > (lineage?.seq ?? 0n)) lineage = manifest;
    sum.current += party.current.length;
    sum.superseded += party.superseded.length;
    sum.rangesWithoutEntries += party.coverage.filter(({ objectKey }) => objectKey === null).length;
  }
  await repository.finish(lineage);
  return { ...sum, problems };
}

/** What one record, or the listing of the objects, says of a party. */
interface PartyPart {
  /** The party's in keys. */
  readonly name: string;
  readonly sizes?: Sizes;
  readonly recorded?: RecordedParty;
}

type Sizes = ReadonlyMap<string, bigint>;

/**
 * Yields together what is said of each party. Names of 64 hex digits rise in each source; others, which have an order
 * of their own, are kept in memory until all are read.
 */
async function* joinParties(
  sources: readonly AsyncIterable<PartyPart>[],
): AsyncGenerator<readonly PartyPart[]> {
  const others = new Map<string, PartyPart[]>();
  async function* rising(source: AsyncIterable<PartyPart>): AsyncGenerator<PartyPart> {
    for await (const part of source) {
      if (isHexId(part.name)) yield part;
      else others.set(part.name, [...(others.get(part.name) ?? []), part]);
    }
  }
  const readers: { rest: AsyncGenerator<PartyPart>; next: PartyPart | undefined }[] = [];
  const advance = async (rest: AsyncGenerator<PartyPart>): Promise<PartyPart | undefined> => {
    const { done, value } = await rest.next();
    return done === true ? undefined : value;
  };
  for (const source of sources) {
    const rest = rising(source);
    readers.push({ rest, next: await advance(rest) });
  }
  for (;;) {
    const least = readers
      .flatMap(({ next }) => next?.name ?? [])
      .reduce((a, b) => (a < b ? a : b), NAMES_END);
    if (least === NAMES_END) break;
    const same = readers.filter(({ next }) => next?.name === least);
    yield same.flatMap(({ next }) => next ?? []);
    for (const reader of same) reader.next = await advance(reader.rest);
  }
  yield* others.values();
}

async function* partsOf(parties: AsyncIterable<RecordedParty>): AsyncGenerator<PartyPart> {
  for await (const recorded of parties) yield { name: partyName(recorded.partyId), recorded };
}

async function readManifests(
  objects: ObjectStore,
  sizes: ReadonlyMap<string, bigint>,
  onProblem: (key: string, error: PermanentError) => void,
  signal: AbortSignal,
): Promise<readonly Manifest[]> {
  const manifests: Manifest[] = [];
  for (const key of sizes.keys()) {
    if (!isManifestKey(key)) continue;
    try {
      manifests.push(await checkedManifest(objects, key, sizes, signal));
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      onProblem(key, error);
    }
  }
  return manifests;
}

/** Sizes by key, one map a party: keys come in order, and begin with the party's name. */
async function* partyObjects(objects: ObjectStore, signal: AbortSignal): AsyncGenerator<PartyPart> {
  let party = '';
  let sizes = new Map<string, bigint>();
  for await (const { key, bytes } of objects.list(PREFIX, signal)) {
    const id = PARTY_OF.exec(key)?.[1];
    if (id === undefined) continue;
    if (id !== party && sizes.size > 0) {
      yield { name: party, sizes };
      sizes = new Map();
    }
    party = id;
    sizes.set(key, bytes);
  }
  if (sizes.size > 0) yield { name: party, sizes };
}

async function checkedManifest(
  objects: ObjectStore,
  key: string,
  sizes: ReadonlyMap<string, bigint>,
  signal: AbortSignal,
): Promise<Manifest> {
  if ((sizes.get(key) ?? 0n) > BigInt(MANIFEST_BYTES_MAX)) throw misplaced(key, 'it is too large for one');
  const manifest = await readManifest(objects, key, signal);
  const isOfParty = key.startsWith(`${PREFIX}party=${partyName(manifest.partyId)}/`);
  if (!isOfParty || manifestKey(manifest.objectKey) !== key)
    throw misplaced(key, `it is of ${manifest.objectKey}`);
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
