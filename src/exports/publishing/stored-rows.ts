/**
 * Copies rows of published objects into new ones, either to merge segments or to keep
 * the rest of a segment when a response replaces part of it. The source is not
 * involved.
 */
import { errorCode, errorLine, RetryableError } from '../../errors/errors.ts';
import { hashRow, RowDigest } from '../../ledger/digest.ts';
import { type Layout, readHeader } from '../../ledger/header.ts';
import {
  compressionOf,
  isArchiveDamage,
  plainStream,
} from '../../ledger/object-keys.ts';
import { RowFields, RowSplitter } from '../../ledger/csv-rows.ts';
import { VegaTimeReader } from '../../ledger/vega-time.ts';
import type { ObjectStore } from '../../storage/object-store.ts';
import type { RangeSpool } from '../download/range-spool.ts';
import type { Coverage } from '../../catalog/coverage-rows.ts';
import type { Reason } from '../../catalog/segment-rows.ts';
import type { ExportRepository } from '../store/export-repository.ts';

/** Coverage with an object. */
export type CoverageWithObject = Coverage & { readonly objectKey: string };

export interface StoredRowsContext {
  readonly objects: Pick<ObjectStore, 'read'>;
  readonly repository: Pick<ExportRepository, 'quarantineSegment'>;
  readonly signal: AbortSignal;
  /**
   * Called with each missing object, so that a caller that reads many objects can
   * decide about all missing ones together. If absent, the object's segment is
   * quarantined at once.
   */
  readonly noteMissing?: ((missing: MissingObject) => void) | undefined;
}

/** A segment whose object is missing. */
export interface MissingObject {
  readonly objectKey: string;
  readonly reason: Reason;
}

/** Facts about the rows that were read from a stored object. */
interface CopiedRows {
  /** The sum of all rows, whether they were copied or not. */
  readonly sum: RowDigest;
  /** The layout of the rows; undefined if even the header line is missing. */
  readonly layout: Layout | undefined;
}

/**
 * Copies each row of an object into the spool that covers its second, if there is one.
 * An object that no longer has its published content is quarantined, and its range is
 * requested again.
 * @param action the verb to use in messages
 * @throws RetryableError `SEGMENT_UNREADABLE` if the object no longer has its published
 *   content
 */
export async function copyStoredRows(
  row: CoverageWithObject,
  spools: readonly RangeSpool[],
  action: 'merge' | 'keep a part of',
  context: StoredRowsContext,
): Promise<Layout> {
  const { objectKey } = row;
  try {
    const { sum, layout } = await copyRows(objectKey, spools, context);
    const isWhole =
      sum.rows === Number(row.rows) && sum.hex() === row.content?.digest;
    if (isWhole && layout !== undefined) return layout;
    throw unreadable(action, objectKey);
  } catch (error) {
    context.signal.throwIfAborted();
    if (!isDamage(error)) throw error;
    const reason = { code: 'SEGMENT_UNREADABLE', message: errorLine(error) };
    if (errorCode(error) === 'OBJECT_MISSING' && context.noteMissing)
      context.noteMissing({ objectKey, reason });
    else await context.repository.quarantineSegment(objectKey, reason);
    throw unreadable(action, objectKey, error);
  }
}

async function copyRows(
  objectKey: string,
  spools: readonly RangeSpool[],
  { objects, signal }: StoredRowsContext,
): Promise<CopiedRows> {
  const sum = new RowDigest();
  const fields = new RowFields();
  const time = new VegaTimeReader();
  let header: Buffer = Buffer.alloc(0);
  let layout: Layout | undefined;

  const splitter = new RowSplitter((buffer, start, end, next) => {
    if (layout === undefined) {
      layout = readHeader(buffer.subarray(start, end));
      header = Buffer.from(buffer.subarray(start, next));
      return;
    }
    fields.scan(buffer, start, end);
    time.read(fields.cell(layout.index.vega_time));
    const hash = hashRow(buffer, start, end);
    sum.add(hash);
    const spool = spools.find((candidate) => candidate.holds(time.second));
    if (spool === undefined) return;
    spool.sum.add(hash, time.zoneSeconds);
    const { second } = time;
    spool.add(buffer.subarray(start, next), {
      earliest: second,
      latest: second,
    });
  });

  const stored = await objects.read(objectKey, signal);
  for await (const chunk of plainStream(stored, compressionOf(objectKey))) {
    splitter.push(chunk as Buffer);
    for (const spool of spools) await spool.flush(header);
  }
  return { sum, layout };
}

/**
 * Codes of errors from parsing rows. In an object that this mirror has written, they
 * mean damage, because the same rows were readable when it was written.
 */
const DAMAGE_CODES: ReadonlySet<string> = new Set([
  'SEGMENT_UNREADABLE',
  'OBJECT_MISSING',
  'COLUMNS_MISSING',
  'COLUMNS_REPEATED',
  'HEADER_NOT_UNDERSTOOD',
  'ROW_TOO_LARGE',
]);

/**
 * Whether an error proves that the object is missing or damaged. Any other error comes
 * from the store.
 */
function isDamage(error: unknown): boolean {
  return DAMAGE_CODES.has(errorCode(error)) || isArchiveDamage(error);
}

function unreadable(
  action: string,
  objectKey: string,
  cause?: unknown,
): RetryableError {
  return new RetryableError(
    `Cannot ${action} ${objectKey}: its content is not what was ` +
      'published; its range will be requested again',
    { code: 'SEGMENT_UNREADABLE', meta: { key: objectKey }, cause },
  );
}
