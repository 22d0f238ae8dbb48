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
import type { Pool, PoolClient } from 'pg';
import { ByteSums } from '../../core/byte-sums.ts';
import {
  encodeHead,
  encodeParty,
  readRecordKey,
  recordedRange,
  type RecordedRangeJson,
  type RecordHead,
  recordKey,
  recordsOf,
} from '../../ledger/objects/coverage-record.ts';
import type { ObjectStore } from '../../objects/object-store.ts';
import { onOwnConnection, takeLock } from '../../postgres/advisory-lock.ts';
import { WAITS_FOR_THE_STORE } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';

const ACTION = 'record what is covered';
/** A rebuild reads them side by side. */
const CHANGES_MAX = 32;
const SPOOL_PREFIX = 'coverage.';
/** Written together: a line by itself would cost compression ten times its time. */
const PARTIES_AT_ONCE = 50;

const ANY = 'select from mirror.exports where coverage_seq <> recorded_seq limit 1';
const NUMBER = `update mirror.identity set publication_seq = publication_seq + 1
  returning warehouse_id as "warehouseId", publication_seq as seq, (
    select 2 * count(*) filter (where coverage_seq <> recorded_seq) >= count(*) from mirror.exports) as "isMostlyChanged"`;
/** A killed process's note is of no use: what it has not recorded, the next one notes. */
const FORGET = 'truncate mirror.recording';
const NOTE = `insert into mirror.recording
  select export_id, coverage_seq from mirror.exports where coverage_seq <> recorded_seq`;
const DONE = `update mirror.exports e set recorded_seq = r.coverage_seq from mirror.recording r where e.export_id = r.export_id`;

const CHANGED = `where c.party_id in (select party_id from mirror.exports where coverage_seq <> recorded_seq)`;
const COVERED = (isFull: boolean): string => `declare covered no scroll cursor for
  select c.party_id as "partyId", jsonb_agg(
    jsonb_build_object('assetId', c.asset_id, 'from', c.from_time, 'to', c.to_time, 'open', c.open, 'sides', c.sides,
      'objectKey', s.object_key, 'tail', c.tail, 'runId', c.run_id, 'checkedAt', c.checked_at)
    order by c.from_time, c.asset_id collate "C") as coverage
  from mirror.coverage c left join mirror.segments s using (segment_id)
  ${isFull ? '' : CHANGED}
  group by c.party_id order by c.party_id collate "C"`;

interface Numbered extends Omit<RecordHead, 'version'> {
  readonly isMostlyChanged: boolean;
}

export interface RecordDeps {
  readonly pool: Pool;
  readonly objects: ObjectStore;
}

/**
 * All on one connection, closed behind the work: whoever lost the lock cannot note anything as recorded.
 * @returns the record's key; undefined where nothing has changed since the last one
 */
export async function recordCoverage(
  { pool, objects }: RecordDeps,
  signal: AbortSignal,
): Promise<string | undefined> {
  return onOwnConnection(pool, ACTION, async (client) => {
    await takeLock(client, 'mirror.coverage', 'session', signal);
    if ((await ask(client, ANY)).length === 0) return undefined;
    const [identity] = await ask<Numbered>(client, NUMBER);
    if (identity === undefined) throw new RangeError('the warehouse has no identity');
    await ask(client, FORGET);
    // What is noted and what is read is of one moment.
    await ask(client, 'begin isolation level repeatable read');
    await ask(client, WAITS_FOR_THE_STORE);
    await ask(client, NOTE);
    await objects.clearSpool(SPOOL_PREFIX);
    const before = await storedRecords(identity.warehouseId, objects, signal);
    // Of most it costs hardly less than of all, and the next one need not be whole.
    const isFull = identity.isMostlyChanged || wantsWhole(before);
    const lines = readLines(client, identity, isFull, signal);
    const key = await write(lines, { ...identity, isFull }, objects, signal);
    // One above ours is of a database that went back to a backup: it knows what this one has forgotten.
    const older = isFull ? before.filter(({ seq }) => seq < identity.seq) : [];
    for (const record of older) await objects.remove(record.key, signal);
    await ask(client, 'commit');
    await ask(client, 'analyze mirror.recording');
    await ask(client, DONE);
    return key;
  });
}

async function ask<Row extends object>(client: PoolClient, text: string): Promise<Row[]> {
  return (await mapDatabaseError(ACTION, () => client.query<Row>(text))).rows;
}

async function storedRecords(warehouseId: string, objects: ObjectStore, signal: AbortSignal) {
  const records = [];
  for await (const { key, bytes } of objects.list(recordsOf(warehouseId), signal)) {
    const name = readRecordKey(key);
    if (name !== undefined) records.push({ ...name, key, bytes });
  }
  return records;
}

/** So that all of them together are never much more than twice what one of everything is. */
function wantsWhole(records: Awaited<ReturnType<typeof storedRecords>>): boolean {
  const whole = records.findLast(({ isFull }) => isFull);
  if (whole === undefined) return true;
  const changes = records.filter(({ seq }) => seq > whole.seq);
  return changes.length >= CHANGES_MAX || changes.reduce((sum, { bytes }) => sum + bytes, 0n) >= whole.bytes;
}

/** In the order of the parties' ids. */
async function* readLines(
  client: PoolClient,
  { warehouseId, seq }: Numbered,
  isFull: boolean,
  signal: AbortSignal,
): AsyncGenerator<string> {
  yield encodeHead({ version: 1, warehouseId, seq });
  await ask(client, COVERED(isFull));
  for (;;) {
    signal.throwIfAborted();
    const parties = await ask<CoveredParty>(client, `fetch ${PARTIES_AT_ONCE} from covered`);
    if (parties.length === 0) return;
    yield parties
      .map(({ partyId, coverage }) =>
        encodeParty({ partyId, coverage: coverage.map((range) => recordedRange.parse(range)) }),
      )
      .join('');
  }
}

interface CoveredParty {
  readonly partyId: string;
  readonly coverage: readonly RecordedRangeJson[];
}

async function write(
  lines: AsyncIterable<string>,
  name: Omit<Parameters<typeof recordKey>[0], 'sha256'>,
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<string> {
  const path = await objects.spoolPath(`${SPOOL_PREFIX}${name.seq}.jsonl.zst`);
  const [plain, stored] = [new ByteSums(), new ByteSums()];
  try {
    const compressed = [plain.through(), createZstdCompress(), stored.through()] as const;
    await pipeline(Readable.from(lines), ...compressed, createWriteStream(path), { signal });
    const key = recordKey({ ...name, sha256: plain.sha256() });
    await objects.publishFile(key, path, stored.facts(), signal);
    return key;
  } finally {
    await unlink(path).catch(() => undefined);
  }
}
