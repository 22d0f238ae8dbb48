/**
 * Reads a published object and proves it while reading: the object's bytes, the plain bytes, the rows
 * and their digest are what the manifest table says, or the read fails at its end.
 */
import { pipeline, type Readable } from 'node:stream';
import { ByteCounter } from '../files/byte-counter.ts';
import {
  errorCode,
  type ErrorDetails,
  PermanentError,
  RetryableError,
} from '../errors/errors.ts';
import { hashRow, RowDigest } from '../ledger/digest.ts';
import { type Layout, readHeader } from '../ledger/header.ts';
import { RowSplitter, type RowVisitor } from '../ledger/row-splitter.ts';
import { compressionOf, isArchiveDamage, plainStream } from '../ledger/object-keys.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import type { SegmentRecord } from '../catalog/segment-records.ts';

/**
 * What the consumer makes of a piece stays small enough to die young: of larger texts, V8 collects none
 * before they are hundreds of megabytes.
 */
const PIECE_BYTES = 32 * 2 ** 10;

/** A segment's own fault, told apart from the warehouse's and the store's. */
export class SegmentFault extends PermanentError {
  readonly segment: SegmentRecord;

  constructor(segment: SegmentRecord, message: string, details: ErrorDetails) {
    super(message, details);
    this.segment = segment;
  }
}

/**
 * Yields after each piece of plain bytes, when its rows were visited: the consumer's pace is the pace
 * of reading. Ends normally only where everything agrees with the record.
 * @param begin called once, before the first row; what it returns gets each, valid during the call only
 * @throws SegmentFault `OBJECT_CORRUPT` naming what differs, `OBJECT_MISSING`, or what the header or a row says
 * @throws RetryableError where the store broke
 */
export async function* readSegment(
  objects: ObjectStore,
  segment: SegmentRecord,
  begin: (layout: Layout) => RowVisitor,
  signal: AbortSignal,
): AsyncGenerator<void> {
  const stored = new ByteCounter();
  const plain = new ByteCounter();
  const digest = new RowDigest();
  const key = segment.objectKey;
  const corrupt = (what: string, found: string | bigint, recorded: string | bigint) => {
    const state = `its ${what} is ${found}, recorded is ${recorded}; restore it from a backup, or export the range again`;
    const meta = { key, what, found: `${found}`, recorded: `${recorded}` };
    const message = `Cannot use the object ${key}: ${state}`;
    return new SegmentFault(segment, message, { code: 'OBJECT_CORRUPT', meta });
  };
  let visit: RowVisitor | undefined;
  const splitter = new RowSplitter((buffer, start, end, next) => {
    if (visit === undefined) visit = begin(readHeader(buffer.subarray(start, end)));
    else {
      digest.add(hashRow(buffer, start, end));
      visit(buffer, start, end, next);
    }
  });
  let bytes: Readable | undefined;
  try {
    const source = await objects.read(key, signal);
    // The callback does nothing: an error destroys the last stream, whose reader meets it.
    const counted = pipeline(source, stored.through(), () => undefined);
    bytes = plainStream(counted, compressionOf(key));
    for await (const chunk of bytes as AsyncIterable<Buffer>) {
      signal.throwIfAborted();
      plain.add(chunk);
      // Sooner than at the end: a damaged archive could unpack for ever.
      if (plain.bytes > segment.bytes) throw corrupt('bytes', plain.bytes, segment.bytes);
      for (let start = 0; start < chunk.length; start += PIECE_BYTES) {
        splitter.push(chunk.subarray(start, start + PIECE_BYTES));
        yield;
      }
    }
    for (const [what, found, recorded] of [
      ['object_bytes', stored.bytes, segment.objectBytes],
      ['object_sha256', stored.sha256(), segment.objectSha256],
      ['bytes', plain.bytes, segment.bytes],
      ['sha256', plain.sha256(), segment.sha256],
      ['last line', splitter.rest().length === 0 ? 'ended' : 'cut off', 'ended'],
      ['rows', BigInt(digest.rows), segment.rows],
      ['digest', digest.hex(), segment.digest],
    ] as const)
      if (found !== recorded) throw corrupt(what, found, recorded);
  } catch (error) {
    signal.throwIfAborted();
    throw readingError(segment, error);
  } finally {
    bytes?.destroy();
  }
}

/** Errors of the archive are the object's fault and stay; the rest is the store's, and may pass. */
function readingError(segment: SegmentRecord, error: unknown): Error {
  if (error instanceof RetryableError || error instanceof SegmentFault) return error;
  if (error instanceof PermanentError) {
    const { message, code, meta } = error;
    return new SegmentFault(segment, message, { code, meta, cause: error });
  }
  const code = errorCode(error);
  const isArchive =
    isArchiveDamage(error) || code === 'ERR_TRAILING_JUNK_AFTER_STREAM_END';
  const message = `Cannot read the object ${segment.objectKey}: ${code}`;
  const details = { cause: error, meta: { key: segment.objectKey } };
  return isArchive
    ? new SegmentFault(segment, `${message}; it is damaged`, {
        ...details,
        code: 'OBJECT_CORRUPT',
      })
    : new RetryableError(`${message}; it is tried again`, {
        ...details,
        code: 'OBJECT_READ_BROKE',
      });
}
