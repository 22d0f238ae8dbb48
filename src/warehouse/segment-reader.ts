/**
 * Reads a published object and proves it in the same pass: the stored bytes, the plain
 * bytes, the rows and their digest must match the record in the manifest table, or the
 * read fails at its end.
 */
import { pipeline, type Readable } from 'node:stream';
import { ByteCounter } from '../files/byte-counter.ts';
import {
  errorCode,
  type ErrorDetails,
  PermanentError,
  RetryableError,
} from '../errors/errors.ts';
import { isStoreFault } from '../errors/faults.ts';
import { hashRow, RowDigest } from '../ledger/digest.ts';
import { type Layout, readHeader } from '../ledger/header.ts';
import { RowSplitter, type RowVisitor } from '../ledger/csv-rows.ts';
import {
  compressionOf,
  isArchiveDamage,
  plainStream,
} from '../ledger/object-keys.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import type { SegmentRecord } from '../catalog/segment-records.ts';

/**
 * Consumers build strings from each piece. Small pieces keep these strings in V8's young
 * generation; larger strings are collected only once they amount to hundreds of
 * megabytes.
 */
const PIECE_BYTES = 32 * 2 ** 10;

/** A fault of a single segment, as opposed to the warehouse or the store. */
export class SegmentFault extends PermanentError {
  readonly segment: SegmentRecord;

  constructor(segment: SegmentRecord, message: string, details: ErrorDetails) {
    super(message, details);
    this.segment = segment;
  }
}

/**
 * Reads a segment. It yields after each piece of plain bytes, once the rows of that piece
 * have been visited, so that the consumer sets the pace. The generator ends normally only
 * if everything agrees with the record.
 * @param begin called once, before the first row. The visitor it returns receives every
 *   row; a row's buffer is valid only during the call
 * @throws SegmentFault `OBJECT_CORRUPT` naming what differs, `OBJECT_MISSING`, or the
 *   code of a header or row that cannot be read
 * @throws PermanentError `OBJECT_STORE_…` if the store refuses to be read
 * @throws RetryableError if the store failed
 */
export async function* readSegment(
  objects: ObjectStore,
  segment: SegmentRecord,
  begin: (layout: Layout) => RowVisitor,
  signal: AbortSignal,
): AsyncGenerator<void> {
  const key = segment.objectKey;
  const stored = new ByteCounter();
  const plain = new ByteCounter();
  const digest = new RowDigest();

  let visit: RowVisitor | undefined;
  const splitter = new RowSplitter((buffer, start, end, next) => {
    if (visit === undefined) {
      visit = begin(readHeader(buffer.subarray(start, end)));
      return;
    }
    digest.add(hashRow(buffer, start, end));
    visit(buffer, start, end, next);
  });

  let bytes: Readable | undefined;
  try {
    const source = await objects.read(key, signal);
    // The callback has nothing to do: an error destroys the last stream, and the loop
    // that reads that stream throws the error.
    const counted = pipeline(source, stored.through(), () => undefined);
    bytes = plainStream(counted, compressionOf(key));
    for await (const chunk of bytes as AsyncIterable<Buffer>) {
      signal.throwIfAborted();
      plain.add(chunk);
      // A damaged archive could decompress without end, so the size is checked along the
      // way.
      if (plain.bytes > segment.bytes) {
        throw corruptObject(segment, 'bytes', plain.bytes, segment.bytes);
      }
      for (let start = 0; start < chunk.length; start += PIECE_BYTES) {
        splitter.push(chunk.subarray(start, start + PIECE_BYTES));
        yield;
      }
    }

    const lastLine = splitter.rest().length === 0 ? 'ended' : 'cut off';
    const comparisons = [
      ['object_bytes', stored.bytes, segment.objectBytes],
      ['object_sha256', stored.sha256(), segment.objectSha256],
      ['bytes', plain.bytes, segment.bytes],
      ['sha256', plain.sha256(), segment.sha256],
      ['last line', lastLine, 'ended'],
      ['rows', BigInt(digest.rows), segment.rows],
      ['digest', digest.hex(), segment.digest],
    ] as const;
    for (const [what, found, recorded] of comparisons) {
      if (found !== recorded)
        throw corruptObject(segment, what, found, recorded);
    }
  } catch (error) {
    signal.throwIfAborted();
    throw classifyReadingError(segment, error);
  } finally {
    bytes?.destroy();
  }
}

function corruptObject(
  segment: SegmentRecord,
  what: string,
  found: string | bigint,
  recorded: string | bigint,
): SegmentFault {
  const key = segment.objectKey;
  const state = `its ${what} is ${found}, recorded is ${recorded}`;
  const advice = 'restore it from a backup, or export the range again';
  return new SegmentFault(
    segment,
    `Cannot use the object ${key}: ${state}; ${advice}`,
    {
      code: 'OBJECT_CORRUPT',
      meta: { key, what, found: `${found}`, recorded: `${recorded}` },
    },
  );
}

/**
 * Classifies a read error. A missing object, a damaged archive and unreadable rows are
 * faults of the segment. If the store refuses the call, its own error is kept, because
 * that error carries the advice. All other errors are transient.
 */
function classifyReadingError(segment: SegmentRecord, error: unknown): Error {
  if (error instanceof RetryableError || error instanceof SegmentFault)
    return error;
  if (error instanceof PermanentError) {
    if (isStoreFault(error)) return error;
    const { message, code, meta } = error;
    return new SegmentFault(segment, message, { code, meta, cause: error });
  }

  const code = errorCode(error);
  const message = `Cannot read the object ${segment.objectKey}: ${code}`;
  const details = { cause: error, meta: { key: segment.objectKey } };
  const isDamaged =
    isArchiveDamage(error) || code === 'ERR_TRAILING_JUNK_AFTER_STREAM_END';
  if (isDamaged) {
    return new SegmentFault(segment, `${message}; it is damaged`, {
      ...details,
      code: 'OBJECT_CORRUPT',
    });
  }
  return new RetryableError(`${message}; it is tried again`, {
    ...details,
    code: 'OBJECT_READ_BROKE',
  });
}
