/**
 * Rows of published objects on their way into new ones: merged, or what is left of a known segment when an answer takes
 * the place of a part of it. The source is not asked.
 */
import { errorCode, errorLine, RetryableError } from '../../errors/errors.ts';
import { hashRow, RowDigest } from '../../ledger/digest.ts';
import { type Layout, readHeader } from '../../ledger/header.ts';
import { compressionOf, isArchiveDamage, plainStream } from '../../ledger/object-keys.ts';
import { RowFields } from '../../ledger/row-fields.ts';
import { RowSplitter } from '../../ledger/row-splitter.ts';
import { VegaTimeReader } from '../../ledger/vega-time.ts';
import type { RangeSpool } from '../download/range-spool.ts';
import type { Coverage } from '../../catalog/coverage-rows.ts';
import type { PublishContext } from '../request.ts';

type StoredRowsContext = Pick<PublishContext, 'objects' | 'repository' | 'signal'>;

/**
 * Copies each row of an object into the spool that its second lies in, where there is one. An object that does not
 * hold what was published is quarantined, and its range is asked for again.
 * @param action for messages
 * @throws RetryableError `SEGMENT_UNREADABLE`
 */
export async function copyStoredRows(
  row: Coverage & { readonly objectKey: string },
  spools: readonly RangeSpool[],
  action: 'merge' | 'keep a part of',
  context: StoredRowsContext,
): Promise<Layout> {
  const { objectKey } = row;
  try {
    const { sum, layout } = await copyRows(objectKey, spools, context);
    const isWhole = sum.rows === Number(row.rows) && sum.hex() === row.content?.digest;
    if (isWhole && layout !== undefined) return layout;
    throw unreadable(action, objectKey);
  } catch (error) {
    context.signal.throwIfAborted();
    if (!isDamage(error)) throw error;
    await context.repository.quarantineSegment(objectKey, {
      code: 'SEGMENT_UNREADABLE',
      message: errorLine(error),
    });
    throw unreadable(action, objectKey, error);
  }
}

/** @returns the sum of all rows, copied or not; no layout where not even the header line is there */
async function copyRows(
  objectKey: string,
  spools: readonly RangeSpool[],
  { objects, signal }: StoredRowsContext,
) {
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
    const spool = spools.find((one) => one.holds(time.second));
    spool?.sum.add(hash, time.zoneSeconds);
    spool?.add(buffer.subarray(start, next));
  });
  const stored = await objects.read(objectKey, signal);
  for await (const chunk of plainStream(stored, compressionOf(objectKey))) {
    splitter.push(chunk as Buffer);
    for (const spool of spools) await spool.flush(header);
  }
  return { sum, layout };
}

function isDamage(error: unknown): boolean {
  const code = errorCode(error);
  return (
    code === 'SEGMENT_UNREADABLE' || code === 'OBJECT_MISSING' || isArchiveDamage(error)
  );
}

function unreadable(action: string, objectKey: string, cause?: unknown): RetryableError {
  return new RetryableError(
    `Cannot ${action} ${objectKey}: it does not hold what was published; its range is asked for again`,
    { code: 'SEGMENT_UNREADABLE', meta: { key: objectKey }, cause },
  );
}
