/** Rows of published objects on their way into new ones. */
import { errorCode, errorLine, RetryableError } from '../../core/errors.ts';
import { hashRow, RowDigest } from '../../ledger/digest.ts';
import { type Layout, readHeader } from '../../ledger/header.ts';
import { compressionOf } from '../../ledger/objects/object-keys.ts';
import { isArchiveDamage, plainStream } from '../../ledger/objects/plain-stream.ts';
import { RowFields } from '../../ledger/row-fields.ts';
import { RowSplitter } from '../../ledger/row-splitter.ts';
import { VegaTimeReader } from '../../ledger/vega-time.ts';
import type { ObjectStore } from '../../objects/object-store.ts';
import type { RangeSpool } from '../spool/range-spool.ts';
import type { Coverage } from '../store/coverage-rows.ts';
import type { ExportStore } from '../store/export-store.ts';

export interface StoredRowsDeps {
  readonly objects: ObjectStore;
  readonly repository: ExportStore;
}

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
  { objects, repository }: StoredRowsDeps,
  signal: AbortSignal,
): Promise<Layout> {
  const { objectKey } = row;
  const rows = new StoredRows(spools);
  try {
    await rows.read(objects, objectKey, signal);
    if (!rows.holds(row)) throw unreadable(action, objectKey);
    return rows.layout;
  } catch (error) {
    signal.throwIfAborted();
    if (!isDamage(error)) throw error;
    await repository.quarantineSegment(objectKey, { code: 'SEGMENT_UNREADABLE', message: errorLine(error) });
    throw unreadable(action, objectKey, error);
  }
}

class StoredRows {
  /** Of all rows, copied or not. */
  readonly #sum = new RowDigest();
  #header: Buffer = Buffer.alloc(0);
  #layout: Layout | undefined;
  readonly #spools: readonly RangeSpool[];
  readonly #fields = new RowFields();
  readonly #time = new VegaTimeReader();
  readonly #splitter = new RowSplitter((buffer, start, end, next) => this.#row(buffer, start, end, next));

  constructor(spools: readonly RangeSpool[]) {
    this.#spools = spools;
  }

  get layout(): Layout {
    return this.#layout ?? readHeader(this.#header);
  }

  async read(objects: ObjectStore, objectKey: string, signal: AbortSignal): Promise<void> {
    const stored = await objects.read(objectKey, signal);
    for await (const chunk of plainStream(stored, compressionOf(objectKey))) {
      this.#splitter.push(chunk as Buffer);
      for (const spool of this.#spools) await spool.flush(this.#header);
    }
  }

  /** Whether the rows that were read are those that were published. */
  holds({ rows, content }: Coverage): boolean {
    return this.#sum.rows === Number(rows) && this.#sum.hex() === content?.digest;
  }

  #row(buffer: Buffer, start: number, end: number, next: number): void {
    if (this.#layout === undefined) {
      this.#layout = readHeader(buffer.subarray(start, end));
      this.#header = Buffer.from(buffer.subarray(start, next));
      return;
    }
    const column = this.#layout.index.vega_time;
    this.#fields.scan(buffer, start, end);
    this.#time.read(buffer, this.#fields.start(column), this.#fields.end(column));
    const { second, zoneSeconds } = this.#time;
    const hash = hashRow(buffer, start, end);
    this.#sum.add(hash);
    const spool = this.#spools.find((one) => one.holds(second));
    spool?.sum.add(hash, zoneSeconds);
    spool?.add(buffer.subarray(start, next));
  }
}

function isDamage(error: unknown): boolean {
  const code = errorCode(error);
  return code === 'SEGMENT_UNREADABLE' || code === 'OBJECT_MISSING' || isArchiveDamage(error);
}

function unreadable(action: string, objectKey: string, cause?: unknown): RetryableError {
  return new RetryableError(
    `Cannot ${action} ${objectKey}: it does not hold what was published; its range is asked for again`,
    { code: 'SEGMENT_UNREADABLE', meta: { key: objectKey }, cause },
  );
}
