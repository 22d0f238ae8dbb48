/**
 * Writes the coverage that no manifest describes to the store, and reads it back from
 * there after the database was lost or restored from a backup. The manifests are taken
 * over first, because an empty range must never replace a range that has entries.
 */
import { pipeline } from 'node:stream/promises';
import { Readable } from 'node:stream';
import { createZstdCompress } from 'node:zlib';
import {
  type Coverage,
  coverageRow,
  insertCoverage,
  readCoverages,
  supersede,
} from '../../catalog/coverage-rows.ts';
import { lockEach } from '../../catalog/leases.ts';
import { errorCode } from '../../errors/errors.ts';
import { isArchiveDamage, plainStream } from '../../ledger/object-keys.ts';
import {
  decodeHead,
  decodeRange,
  encodeHead,
  linesOf,
  type RangeRecord,
  RANGES_KEY,
  rangesInvalid,
} from '../../ledger/range-record.ts';
import { subtract } from '../../ledger/ranges.ts';
import { copyLines } from '../../postgres/copy.ts';
import type { Database, Warehouse } from '../../postgres/database.ts';
import { readIdentity } from '../../postgres/identity.ts';
import { execute } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';
import { inTransaction } from '../../postgres/transaction.ts';
import type { ObjectStore } from '../../storage/object-store.ts';
import { formatInstant } from '../../time/time.ts';
import type { StoreAndCatalog } from './unknown-objects.ts';

/** After this many ranges, the transaction ends at the next party. */
const RANGES_AT_ONCE = 500;

const utc = (column: string): string =>
  `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;

const RANGES = `select json_strip_nulls(json_build_object(
    'partyId', c.party_id, 'from', ${utc('c.from_time')}, 'to', ${utc('c.to_time')},
    'sides', sides, 'objectKey', object_key, 'tail', tail, 'epoch', epoch,
    'runId', c.run_id, 'checkedAt', ${utc('checked_at')}))::text, c.asset_id
  from mirror.coverage c left join mirror.segments s using (segment_id)
  where not c.open and (c.segment_id is null or differs_from_manifest)
  order by c.party_id, c.from_time`;

/** The database that the record is read from, and the store that it is written to. */
export interface RangeRecordDeps {
  readonly warehouse: Warehouse;
  readonly objects: ObjectStore;
}

/** Replaces the store's record with the ranges that are known now. */
export async function publishRanges(
  deps: RangeRecordDeps,
  signal: AbortSignal,
): Promise<void> {
  const compress = createZstdCompress();
  const chunks: Buffer[] = [];
  await pipeline(
    Readable.from(rangeLines(deps, signal)),
    compress,
    async (compressed: AsyncIterable<Buffer>) => {
      for await (const chunk of compressed) chunks.push(chunk);
    },
    { signal },
  );
  await deps.objects.replaceBytes(RANGES_KEY, Buffer.concat(chunks), signal);
}

async function* rangeLines(
  { warehouse }: RangeRecordDeps,
  signal: AbortSignal,
): AsyncGenerator<string> {
  const { warehouseId } = await readIdentity(warehouse.db);
  const writtenAt = new Date().toISOString();
  yield `${encodeHead({ version: 1, warehouseId, writtenAt })}\n`;
  const copy = {
    statement: `copy (${RANGES}) to stdout`,
    action: 'record the ranges that no manifest names',
    signal,
  };
  for await (const lines of copyLines(warehouse.pool, copy)) {
    yield lines.map((line) => `${rangeLine(line)}\n`).join('');
  }
}

/**
 * Completes one line of the record. COPY doubles the backslashes in JSON, and this
 * function undoes that. The asset has a column of its own, because a null asset means
 * every asset and must not be dropped.
 */
function rangeLine(line: string): string {
  const [json = '', asset = ''] = line.replaceAll('\\\\', '\\').split('\t');
  const assetId = asset === '\\N' ? null : asset;
  return `${json.slice(0, -1)},"assetId":${JSON.stringify(assetId)}}`;
}

/** Limits which lines of the record are adopted. */
interface RangeLimits {
  /**
   * If set, only a record of this lineage is adopted; otherwise, a record of any lineage.
   */
  readonly warehouseId?: string | undefined;
  /**
   * If set, only the ranges of this party are adopted; otherwise, those of all parties.
   */
  readonly partyId?: string | undefined;
}

/**
 * Takes over the store's record. Ranges that the database already knows stay unchanged.
 * @returns how many ranges changed
 * @throws PermanentError `RANGES_INVALID` if the record is damaged
 */
export async function adoptRanges(
  { objects, db }: StoreAndCatalog,
  signal: AbortSignal,
  limits: RangeLimits = {},
): Promise<number> {
  let changed = 0;
  let batch: RangeRecord[] = [];
  for await (const record of readRanges(objects, signal, limits)) {
    const isWanted =
      limits.partyId === undefined || record.partyId === limits.partyId;
    // A party is never split between two transactions.
    if (
      batch.length >= RANGES_AT_ONCE &&
      batch.at(-1)?.partyId !== record.partyId
    ) {
      changed += await adoptBatch(db, batch);
      batch = [];
    }
    if (isWanted) batch.push(record);
  }
  return changed + (await adoptBatch(db, batch));
}

/**
 * Reads the store's record. Yields nothing if there is no record, as in stores written by
 * earlier versions.
 */
async function* readRanges(
  objects: ObjectStore,
  signal: AbortSignal,
  { warehouseId }: RangeLimits,
): AsyncGenerator<RangeRecord> {
  let isHeadRead = false;
  try {
    const stored = await objects.read(RANGES_KEY, signal);
    for await (const line of linesOf(plainStream(stored, 'zstd'))) {
      if (isHeadRead) {
        yield decodeRange(line);
        continue;
      }
      isHeadRead = true;
      const head = decodeHead(line);
      if (warehouseId !== undefined && head.warehouseId !== warehouseId) return;
    }
  } catch (error) {
    if (errorCode(error) === 'OBJECT_MISSING') return;
    if (isArchiveDamage(error)) throw rangesInvalid('it is damaged', error);
    throw error;
  }
}

async function adoptBatch(
  db: Database,
  records: readonly RangeRecord[],
): Promise<number> {
  if (records.length === 0) return 0;
  const byParty = Map.groupBy(records, ({ partyId }) => partyId);
  const partyIds = [...byParty.keys()];
  const action = 'take over ranges that no manifest names';
  return inTransaction(db, { action }, async (tx) => {
    // The lock blocks exports of these parties until the transaction commits.
    await lockEach(tx, 'export', partyIds);
    const corrected = await correctSegments(
      tx,
      records.filter(({ objectKey }) => objectKey !== undefined),
    );
    const known = await readCoverages(tx, partyIds);
    const empty = [...byParty].map(([partyId, ranges]) =>
      emptyRanges(
        ranges.filter(({ objectKey }) => objectKey === undefined),
        known.get(partyId) ?? [],
      ),
    );
    await supersede(
      tx,
      empty.flatMap(({ replaced }) => replaced),
    );
    const rows = empty.flatMap(({ added }) =>
      added.map((range) => coverageRow(range.partyId, originOf(range), range)),
    );
    await insertCoverage(tx, rows);
    return corrected + rows.length;
  });
}

/** The changes to the coverage of one party. */
interface EmptyRanges {
  readonly added: readonly NewEmptyRange[];
  /** Coverage ids of the ranges that lie entirely within an added range. */
  readonly replaced: readonly bigint[];
}

/** An empty range, as it is added to the coverage. */
type NewEmptyRange = RangeRecord & { readonly open: false };

/**
 * Reduces the recorded empty ranges to the parts that the database does not know yet.
 * Known ranges with rows take precedence over recorded empty ranges. A known empty range
 * is replaced if it lies within a longer recorded one.
 */
function emptyRanges(
  records: readonly RangeRecord[],
  known: readonly Coverage[],
): EmptyRanges {
  const added: NewEmptyRange[] = [];
  const replaced: bigint[] = [];
  for (const record of records) {
    const { assetId, from, to, sides } = record;
    const rivals = known.filter(
      (row) =>
        (assetId === null ||
          row.assetId === undefined ||
          row.assetId === assetId) &&
        row.from < to &&
        from < row.to,
    );
    const isShorter = (row: Coverage): boolean =>
      row.objectKey === undefined &&
      !row.open &&
      (row.assetId ?? null) === assetId &&
      row.sides === sides &&
      row.from >= from &&
      row.to <= to &&
      (row.from > from || row.to < to);
    const shorter = rivals.filter(isShorter);
    const excluded = rivals.filter((row) => !shorter.includes(row));
    const rest = subtract(record, excluded);
    if (rest.length === 0) continue;
    replaced.push(...shorter.map(({ coverageId }) => coverageId));
    // The sum covers the rows just before the end of the range, and a newer range may
    // have changed those.
    const tail = excluded.length === 0 ? record.tail : undefined;
    for (const range of rest) {
      added.push({ ...record, ...range, tail, open: false });
    }
  }
  return { added, replaced };
}

function originOf({ runId, epoch }: RangeRecord): {
  readonly runId: string | null;
  readonly epoch: number | undefined;
} {
  return { runId: runId ?? null, epoch };
}

/**
 * Corrects the facts that manifests record about segments. A segment that was checked
 * more recently than the record stays unchanged. For all others, the record is newer than
 * the manifest, which was written when the segment was published or merged.
 * @returns how many segments changed
 */
async function correctSegments(
  tx: Database,
  records: readonly RangeRecord[],
): Promise<number> {
  if (records.length === 0) return 0;
  const given = records.map(({ objectKey, tail, epoch, runId, checkedAt }) => ({
    objectKey,
    epoch,
    runId,
    tail: tail && { ...tail, from: formatInstant(tail.from) },
    checkedAt: formatInstant(checkedAt),
  }));
  const correct = statement()`
    with given as (
      select s.segment_id, g.* from jsonb_to_recordset(${JSON.stringify(given)}::jsonb)
          as g("objectKey" text, tail jsonb, epoch int, "runId" uuid, "checkedAt" timestamptz)
        join mirror.segments s on s.object_key = g."objectKey" and s.status = 'current'),
    closed as (
      update mirror.segments s set open = false from given
      where s.segment_id = given.segment_id and s.open)
    update mirror.coverage c set open = false, tail = given.tail, epoch = given.epoch,
      run_id = given."runId", checked_at = given."checkedAt", differs_from_manifest = true
    from given where c.segment_id = given.segment_id
      and (c.open or c.checked_at < given."checkedAt")`;
  return Number(await execute(tx, 'correct what manifests say', correct));
}
