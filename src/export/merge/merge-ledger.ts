/**
 * Merges closed segments of one ledger, without the source: their rows become one object, whose digest must be the sum
 * of theirs, and which is published as an answer would be, in the place of all of them.
 */
import { randomUUID } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { errorCode, errorLine, PermanentError } from '../../core/errors.ts';
import { RowDigest } from '../../ledger/digest.ts';
import { decodeManifest } from '../../ledger/objects/manifest.ts';
import { type Compression, compressionOf, manifestKey } from '../../ledger/objects/object-keys.ts';
import { plainStream } from '../../ledger/objects/plain-stream.ts';
import type { ObjectStore } from '../../objects/object-store.ts';
import { keepLease, LEASE_MS } from '../lease.ts';
import type { Coverage, ExportLease, ExportScope, Publication } from '../ports.ts';
import { OF_THE_STORE, segmentManifest } from '../publish/build-publication.ts';
import { publish, recover, spoolPrefix, type PublishDeps, type Step } from '../publish/publish.ts';
import { StoredRows } from '../publish/stored-rows.ts';
import type { ExportStore } from '../store/export-store.ts';
import { type Spooled, SpoolWriter, Tally } from '../spool/spool-writer.ts';
import { hasRows, type MergeLimits, planMerges } from './plan-merges.ts';

export interface MergeDeps {
  readonly repository: ExportStore;
  readonly objects: ObjectStore;
  readonly compression: Compression;
  readonly runId: string;
  readonly failpoint?: ((step: Step) => Promise<void> | void) | undefined;
}

export interface Merged {
  readonly segments: number;
  readonly into: number;
  readonly rows: bigint;
  /** Of plain CSV. */
  readonly bytes: bigint;
}

const NOTHING: Merged = { segments: 0, into: 0, rows: 0n, bytes: 0n };

/** @returns undefined where another works on the ledger */
export async function mergeLedger(
  scope: ExportScope,
  deps: MergeDeps,
  limits: MergeLimits,
  stop: AbortSignal,
): Promise<Merged | undefined> {
  const takenAtMs = performance.now();
  const lease = await deps.repository.acquire(scope, LEASE_MS);
  if (lease === undefined) return undefined;
  await using held = keepLease({
    what: `the segments of party ${scope.partyId}`,
    takenAtMs,
    renew: () => deps.repository.renew(lease, LEASE_MS),
    release: () => deps.repository.release(lease),
  });
  const publishing: PublishDeps = {
    repository: deps.repository,
    objects: deps.objects,
    failpoint: async (step) => {
      await deps.failpoint?.(step);
      held.check();
    },
  };
  const signal = AbortSignal.any([stop, held.signal]);
  await recover(lease, publishing, signal);
  const coverage = await deps.repository.coverage(scope);
  let merged = NOTHING;
  for (const group of planMerges(coverage.filter(isOf(scope)), limits)) {
    const done = await mergeOne(lease, group, deps, publishing, signal);
    if (done === undefined) continue;
    merged = {
      segments: merged.segments + group.filter(hasRows).length,
      into: merged.into + 1,
      rows: merged.rows + BigInt(done.rows),
      bytes: merged.bytes + done.bytes,
    };
  }
  return merged;
}

function isOf({ assetId }: ExportScope): (row: Coverage) => boolean {
  return (row) => row.assetId === assetId;
}

/** @returns undefined where an object does not hold what was published: its range is asked for again, and nothing merged */
async function mergeOne(
  lease: ExportLease,
  group: readonly Coverage[],
  deps: MergeDeps,
  publishing: PublishDeps,
  signal: AbortSignal,
): Promise<Spooled | undefined> {
  const { objects, repository } = deps;
  const name = `${spoolPrefix(lease)}${lease.token}.${randomUUID().slice(0, 8)}.csv`;
  const spool = { name, path: await objects.spoolPath(name) };
  const tally = new Tally();
  await using writers = new AsyncDisposableStack();
  let writer: SpoolWriter | undefined;
  let layout: StoredRows['layout'] | undefined;
  for (const { objectKey, content, rows } of group) {
    if (objectKey === undefined) continue;
    const target = { from: -Infinity, to: Infinity, tally, pending: [] as Buffer[] };
    const reading = new StoredRows([target]);
    try {
      const stored = await objects.read(objectKey, signal);
      for await (const chunk of plainStream(stored, compressionOf(objectKey))) {
        reading.push(chunk as Buffer);
        if (target.pending.length === 0) continue;
        writer ??= writers.use(await SpoolWriter.create(spool, reading.header, deps.compression, tally));
        await writer.writeJoined(target.pending.splice(0));
      }
      if (reading.sum.rows !== Number(rows) || reading.sum.hex() !== content?.digest)
        throw damaged(objectKey);
    } catch (error) {
      signal.throwIfAborted();
      if (!isDamage(error)) throw error;
      await repository.quarantineSegment(objectKey, {
        code: 'SEGMENT_UNREADABLE',
        message: errorLine(error),
      });
      return undefined;
    }
    layout ??= reading.layout;
  }
  if (writer === undefined || layout === undefined) return undefined;
  const spooled = await writer.finish();
  await publishing.failpoint('spooled');
  checkSums(group, spooled);
  const publication = await publicationOf(lease.scope, group, { spooled, layout }, deps, signal);
  await publish(lease, publication, publishing, signal);
  return spooled;
}

function damaged(objectKey: string): PermanentError {
  return new PermanentError(
    `Cannot merge ${objectKey}: it does not hold what was published; its range is asked for again`,
    { code: 'SEGMENT_UNREADABLE', meta: { key: objectKey } },
  );
}

function isDamage(error: unknown): boolean {
  const code = errorCode(error);
  return code === 'SEGMENT_UNREADABLE' || code === 'OBJECT_MISSING' || /^(?:ZSTD_|Z_)/.test(code);
}

/** @throws PermanentError `SUMS_DIFFER` where the object that was written is not all of theirs */
function checkSums(group: readonly Coverage[], spooled: Spooled): void {
  const sum = new RowDigest();
  for (const { content, rows } of group)
    if (content !== undefined) sum.merge(RowDigest.fromHex(content.digest, Number(rows)));
  const forms = new Set(group.flatMap(({ content }) => content?.rowForm ?? []));
  const isSame = sum.rows === spooled.rows && sum.hex() === spooled.digest && forms.has(spooled.rowForm);
  if (isSame) return;
  throw new PermanentError(
    `Cannot merge segments: ${spooled.rows} rows were written of ${sum.rows}, or other ones; nothing was published, report this`,
    { code: 'SUMS_DIFFER', meta: { keys: group.flatMap(({ objectKey }) => objectKey ?? []) } },
  );
}

async function publicationOf(
  scope: ExportScope,
  group: readonly Coverage[],
  { spooled, layout }: { readonly spooled: Spooled; readonly layout: StoredRows['layout'] },
  { repository, objects, compression, runId }: MergeDeps,
  signal: AbortSignal,
): Promise<Publication> {
  const last = group.findLast(hasRows);
  const [first, end] = [group[0], group.at(-1)];
  if (first === undefined || end === undefined || last?.objectKey === undefined)
    throw new RangeError('nothing to merge');
  const beside = manifestKey(last.objectKey);
  const { source } = decodeManifest(await buffer(await objects.read(beside, signal)), beside);
  const { warehouseId } = await repository.identity();
  const seq = await repository.nextSeq();
  const range = { from: first.from, to: end.to, open: false };
  const context = { compression, warehouseId, seq, source, runId };
  const manifest = segmentManifest(range, spooled, { ...OF_THE_STORE, layout }, scope, context);
  const checkedAts = group.flatMap(({ checkedAt }) => checkedAt ?? []);
  return {
    publicationId: randomUUID(),
    runId,
    segments: [{ spoolName: spooled.name, manifest }],
    coverage: [
      {
        ...range,
        sides: layout.sides,
        objectKey: manifest.objectKey,
        tail: end.tail,
        checkedAt: checkedAts.reduce((least, at) => (at < least ? at : least), checkedAts[0] ?? 0n),
      },
    ],
    supersedes: group.map(({ coverageId }) => coverageId),
    closes: [],
    epoch: end.epoch,
  };
}
