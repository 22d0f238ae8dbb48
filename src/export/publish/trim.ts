/**
 * What is left of a known segment when an answer takes the place of a part of it: its rows outside of that part,
 * read from the store and written anew. The source is not asked.
 */
import { errorCode, errorLine, RetryableError } from '../../core/errors.ts';
import { hashRow, RowDigest } from '../../ledger/digest.ts';
import { type Layout, readHeader } from '../../ledger/header.ts';
import { type Compression, compressionOf } from '../../ledger/objects/object-keys.ts';
import { plainStream } from '../../ledger/objects/plain-stream.ts';
import { RowFields } from '../../ledger/row-fields.ts';
import { RowSplitter } from '../../ledger/row-splitter.ts';
import { VegaTimeReader } from '../../ledger/vega-time.ts';
import type { ObjectStore } from '../../objects/object-store.ts';
import type { Range } from '../plan/ranges.ts';
import type { Trim } from '../plan/remaining.ts';
import type { Coverage } from '../ports.ts';
import { type Spooled, SpoolWriter, Tally } from '../spool/spool-writer.ts';
import { secondOf } from '../validate/tail.ts';

export interface TrimContext {
  readonly objects: ObjectStore;
  readonly compression: Compression;
  readonly spoolFile: () => Promise<{ name: string; path: string }>;
  readonly signal: AbortSignal;
  /** Told of an object that does not hold what was published. */
  readonly onUnreadable: (objectKey: string, message: string) => Promise<void>;
}

/** A range that is kept, with its rows where it has any. */
export interface Kept {
  readonly row: Coverage;
  readonly range: Range;
  readonly written: { readonly spooled: Spooled; readonly layout: Layout } | undefined;
}

/**
 * @throws RetryableError `SEGMENT_UNREADABLE` where the object does not hold what is known of it: then all of its
 *   range is to be asked for
 */
export async function trimmed(trims: readonly Trim[], context: TrimContext): Promise<readonly Kept[]> {
  const kept: Kept[] = [];
  for (const { row, keeps } of trims) {
    if (row.objectKey === undefined) kept.push(...keeps.map((range) => ({ row, range, written: undefined })));
    else kept.push(...(await readable(row, row.objectKey, keeps, context)));
  }
  return kept;
}

interface Target {
  readonly range: Range;
  readonly from: number;
  readonly to: number;
  readonly tally: Tally;
  writer: SpoolWriter | undefined;
  pending: Buffer[];
}

async function readable(
  row: Coverage,
  objectKey: string,
  keeps: readonly Range[],
  context: TrimContext,
): Promise<Kept[]> {
  try {
    return await rewritten(row, objectKey, keeps, context);
  } catch (error) {
    context.signal.throwIfAborted();
    const code = errorCode(error);
    if (code !== 'SEGMENT_UNREADABLE' && code !== 'OBJECT_MISSING' && !/^(?:ZSTD_|Z_)/.test(code))
      throw error;
    await context.onUnreadable(objectKey, errorLine(error));
    throw unreadable(objectKey, error);
  }
}

function unreadable(objectKey: string, cause?: unknown): RetryableError {
  return new RetryableError(
    `Cannot keep a part of ${objectKey}: it does not hold what was published; its range is asked for again`,
    { code: 'SEGMENT_UNREADABLE', meta: { key: objectKey }, cause },
  );
}

async function rewritten(
  row: Coverage,
  objectKey: string,
  keeps: readonly Range[],
  { objects, compression, spoolFile, signal }: TrimContext,
): Promise<Kept[]> {
  await using writers = new AsyncDisposableStack();
  const targets = keeps.map((range): Target => {
    const [from, to] = [secondOf(range.from), secondOf(range.to)];
    return { range, from, to, tally: new Tally(), writer: undefined, pending: [] };
  });
  const reading = new StoredRows(targets);
  const stored = await objects.read(objectKey, signal);
  for await (const chunk of plainStream(stored, compressionOf(objectKey))) {
    reading.push(chunk as Buffer);
    for (const target of targets) {
      if (target.pending.length === 0) continue;
      target.writer ??= writers.use(
        await SpoolWriter.create(await spoolFile(), reading.header, compression, target.tally),
      );
      await target.writer.writeJoined(target.pending.splice(0));
    }
  }
  if (reading.sum.rows !== Number(row.rows) || reading.sum.hex() !== row.content?.digest) {
    throw unreadable(objectKey);
  }
  const kept: Kept[] = [];
  for (const { range, writer } of targets) {
    const spooled = await writer?.finish();
    const written = spooled === undefined ? undefined : { spooled, layout: reading.layout };
    kept.push({ row, range, written });
  }
  return kept;
}

/** Sends each row to the range its second lies in; the sum is of all rows. */
class StoredRows {
  readonly sum = new RowDigest();
  header: Buffer = Buffer.alloc(0);
  #layout: Layout | undefined;
  readonly #targets: readonly Target[];
  readonly #fields = new RowFields();
  readonly #time = new VegaTimeReader();
  readonly #splitter = new RowSplitter((buffer, start, end, next) => this.#row(buffer, start, end, next));

  constructor(targets: readonly Target[]) {
    this.#targets = targets;
  }

  get layout(): Layout {
    return this.#layout ?? readHeader(this.header);
  }

  push(chunk: Buffer): void {
    this.#splitter.push(chunk);
  }

  #row(buffer: Buffer, start: number, end: number, next: number): void {
    if (this.#layout === undefined) {
      this.#layout = readHeader(buffer.subarray(start, end));
      this.header = Buffer.from(buffer.subarray(start, next));
      return;
    }
    const column = this.#layout.index.vega_time;
    this.#fields.scan(buffer, start, end);
    this.#time.read(buffer, this.#fields.start(column), this.#fields.end(column));
    const { second, zoneSeconds } = this.#time;
    const hash = hashRow(buffer, start, end);
    this.sum.add(hash);
    const target = this.#targets.find(({ from, to }) => second >= from && second < to);
    if (target === undefined) return;
    target.tally.add(hash, second, zoneSeconds, next - start);
    target.pending.push(buffer.subarray(start, next));
  }
}
