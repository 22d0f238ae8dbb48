/**
 * Reads a published object and proves it while reading: the object's bytes, the plain bytes, the rows
 * and their digest are what the manifest table says, or the read fails at its end.
 */
import { pipeline, type Readable } from 'node:stream';
import { ByteSums } from '../core/byte-sums.ts';
import { errorCode, PermanentError, RetryableError } from '../core/errors.ts';
import { hashRow, RowDigest } from '../ledger/digest.ts';
import { type Layout, readHeader } from '../ledger/header.ts';
import { RowSplitter } from '../ledger/row-splitter.ts';
import { compressionOf } from '../ledger/objects/object-keys.ts';
import { isArchiveDamage, plainStream } from '../ledger/objects/plain-stream.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import type { SegmentRecord } from './store/segment-records.ts';

/**
 * What the consumer makes of a piece stays small enough to die young: of larger texts, V8 collects none
 * before they are hundreds of megabytes.
 */
const PIECE_BYTES = 32 * 2 ** 10;

/** What a row visitor gets: the row is `buffer[start, end)`, valid during the call only. */
export interface SegmentRows {
  /** Called once, before the first row. */
  header(layout: Layout): void;
  row(buffer: Buffer, start: number, end: number): void;
}

/**
 * Yields after each piece of plain bytes, when its rows were visited: the consumer's pace is the pace
 * of reading. Ends normally only where everything agrees with the record.
 * @throws PermanentError `OBJECT_CORRUPT` naming what differs, `OBJECT_MISSING`, or what the header says
 * @throws RetryableError where the store broke
 */
export async function* readSegment(
  objects: ObjectStore,
  segment: SegmentRecord,
  rows: SegmentRows,
  signal: AbortSignal,
): AsyncGenerator<void> {
  const stored = new ByteSums();
  const plain = new ByteSums();
  const digest = new RowDigest();
  let isHeader = true;
  const splitter = new RowSplitter((buffer, start, end) => {
    if (isHeader) {
      isHeader = false;
      rows.header(readHeader(buffer.subarray(start, end)));
      return;
    }
    digest.add(hashRow(buffer, start, end));
    rows.row(buffer, start, end);
  });
  const source = await objects.read(segment.objectKey, signal);
  const bytes = plainBytes(source, stored, segment);
  try {
    for await (const chunk of bytes as AsyncIterable<Buffer>) {
      signal.throwIfAborted();
      plain.add(chunk);
      // Sooner than at the end: a damaged archive could unpack for ever.
      if (plain.bytes > segment.bytes) throw corrupt(segment, 'bytes', plain.bytes, segment.bytes);
      for (let start = 0; start < chunk.length; start += PIECE_BYTES) {
        splitter.push(chunk.subarray(start, start + PIECE_BYTES));
        yield;
      }
    }
  } catch (error) {
    signal.throwIfAborted();
    throw readingError(segment, error);
  } finally {
    bytes.destroy();
  }
  checkSums(segment, [
    ['object_bytes', stored.bytes, segment.objectBytes],
    ['object_sha256', stored.sha256(), segment.objectSha256],
    ['bytes', plain.bytes, segment.bytes],
    ['sha256', plain.sha256(), segment.sha256],
    ['last line', splitter.rest().length === 0 ? 'ended' : 'cut off', 'ended'],
    ['rows', BigInt(digest.rows), segment.rows],
    ['digest', digest.hex(), segment.digest],
  ]);
}

function plainBytes(source: Readable, stored: ByteSums, segment: SegmentRecord): Readable {
  // The callback does nothing: an error destroys the last stream, whose reader meets it.
  const counted = pipeline(source, stored.through(), () => undefined);
  return plainStream(counted, compressionOf(segment.objectKey));
}

function checkSums(
  segment: SegmentRecord,
  sums: readonly (readonly [what: string, found: string | bigint, recorded: string | bigint])[],
): void {
  for (const [what, found, recorded] of sums) {
    if (found !== recorded) throw corrupt(segment, what, found, recorded);
  }
}

function corrupt(
  segment: SegmentRecord,
  what: string,
  found: string | bigint,
  recorded: string | bigint,
): PermanentError {
  return new PermanentError(
    `Cannot use the object ${segment.objectKey}: its ${what} is ${found}, recorded is ${recorded}; ` +
      'restore it from a backup, or export the range again',
    {
      code: 'OBJECT_CORRUPT',
      meta: { key: segment.objectKey, what, found: `${found}`, recorded: `${recorded}` },
    },
  );
}

/** Errors of the archive are the object's fault and stay; the rest is the store's, and may pass. */
function readingError(segment: SegmentRecord, error: unknown): Error {
  if (error instanceof PermanentError || error instanceof RetryableError) return error;
  const code = errorCode(error);
  const isArchive = isArchiveDamage(error) || code === 'ERR_TRAILING_JUNK_AFTER_STREAM_END';
  const message = `Cannot read the object ${segment.objectKey}: ${code}`;
  const details = { cause: error, meta: { key: segment.objectKey } };
  return isArchive
    ? new PermanentError(`${message}; it is damaged`, { ...details, code: 'OBJECT_CORRUPT' })
    : new RetryableError(`${message}; it is tried again`, { ...details, code: 'OBJECT_READ_BROKE' });
}
