/**
 * Writes down in the store what is covered, so that a lost database need not ask for it again. A record holds
 * the parties whose coverage changed since the one before; now and then all of them, and takes the place of
 * the others. It only says what is committed, and an older one only says less.
 */
import { createWriteStream } from 'node:fs';
import { unlink } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createZstdCompress } from 'node:zlib';
import {
  encodeHead,
  encodeParty,
  readRecordKey,
  recordKey,
  recordsOf,
} from '../../ledger/objects/coverage-record.ts';
import { ByteSums } from '../../core/byte-sums.ts';
import type { ObjectStore } from '../../objects/object-store.ts';
import type { CoverageSnapshot, CoverageStore } from '../store/coverage-store.ts';

/** A rebuild reads them side by side. */
const CHANGES_MAX = 32;
const SPOOL_PREFIX = 'coverage.';
/** Written together: a line by itself would cost compression ten times its time. */
const CHUNK_CHARACTERS = 65_536;

export interface RecordDeps {
  readonly repository: CoverageStore;
  readonly objects: ObjectStore;
}

interface StoredRecord {
  readonly key: string;
  readonly bytes: bigint;
  readonly seq: bigint;
  readonly isFull: boolean;
}

/** @returns the record's key; undefined where nothing has changed since the last one */
export async function recordCoverage(
  { repository, objects }: RecordDeps,
  signal: AbortSignal,
): Promise<string | undefined> {
  return repository.recording(async (snapshot) => {
    await objects.clearSpool(SPOOL_PREFIX);
    const before = await storedRecords(snapshot.warehouseId, objects, signal);
    // Then it costs hardly more, and the next one need not be.
    const isFull = snapshot.isMostlyChanged || wantsWhole(before);
    const key = await write(snapshot, isFull, objects, signal);
    // One above ours is of a database that went back to a backup: it knows what this one has forgotten.
    const older = isFull ? before.filter(({ seq }) => seq < snapshot.seq) : [];
    for (const record of older) await objects.remove(record.key, signal);
    return key;
  }, signal);
}

async function storedRecords(
  warehouseId: string,
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<readonly StoredRecord[]> {
  const records: StoredRecord[] = [];
  for await (const { key, bytes } of objects.list(recordsOf(warehouseId), signal)) {
    const name = readRecordKey(key);
    if (name !== undefined) records.push({ key, bytes, seq: name.seq, isFull: name.isFull });
  }
  return records;
}

/** So that all of them together are never much more than twice what one of everything is. */
function wantsWhole(records: readonly StoredRecord[]): boolean {
  const whole = records.findLast(({ isFull }) => isFull);
  if (whole === undefined) return true;
  const changes = records.filter(({ seq }) => seq > whole.seq);
  return changes.length >= CHANGES_MAX || changes.reduce((sum, { bytes }) => sum + bytes, 0n) >= whole.bytes;
}

async function write(
  snapshot: CoverageSnapshot,
  isFull: boolean,
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<string> {
  const path = await objects.spoolPath(`${SPOOL_PREFIX}${snapshot.seq}.jsonl.zst`);
  const [plain, stored] = [new ByteSums(), new ByteSums()];
  try {
    const lines = Readable.from(linesOf(snapshot, isFull));
    const compressed = [plain.through(), createZstdCompress(), stored.through()] as const;
    await pipeline(lines, ...compressed, createWriteStream(path), { signal });
    const key = recordKey({ ...snapshot, isFull, sha256: plain.sha256() });
    await objects.publishFile(key, path, stored.facts(), signal);
    return key;
  } finally {
    await unlink(path).catch(() => undefined);
  }
}

async function* linesOf(snapshot: CoverageSnapshot, isFull: boolean): AsyncGenerator<string> {
  let lines = encodeHead({ version: 1, warehouseId: snapshot.warehouseId, seq: snapshot.seq });
  for await (const party of snapshot.parties(isFull ? 'all' : 'changed')) {
    lines += encodeParty(party);
    if (lines.length < CHUNK_CHARACTERS) continue;
    yield lines;
    lines = '';
  }
  yield lines;
}
