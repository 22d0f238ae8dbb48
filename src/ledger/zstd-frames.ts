/**
 * Splits a stream at the ends of its zstd frames (RFC 8878, section 3.1). Node's
 * decompressor stops at the end of a frame if bytes of the next one are in the same
 * chunk, and drops them without an error. If each frame begins a new chunk, it continues.
 */
import { Transform } from 'node:stream';

const FRAME_MAGIC = 0xfd2fb528;
const SKIPPABLE_MAGIC = 0x184d2a50;
const MAGIC_BYTES = 4;
const CHECKSUM_BYTES = 4;
const BLOCK_HEADER_BYTES = 3;
/** The sizes in bytes of two fields of a frame's header, indexed by their flags. */
const DICTIONARY_ID_BYTES = [0, 1, 2, 4] as const;
const CONTENT_SIZE_BYTES = [0, 2, 4, 8] as const;
const BLOCK_TYPE_RLE = 1;
const BLOCK_TYPE_RESERVED = 3;

/**
 * Returns a stream that passes bytes on unchanged, in chunks that never contain both the
 * end of one frame and the beginning of the next. Bytes that are not zstd are passed on
 * as they come, so that the decompressor reports the damage.
 */
export function splitZstdFrames(): Transform {
  const frames = new FrameEnds();
  return new Transform({
    // Otherwise the stream may join chunks again.
    readableObjectMode: true,
    transform(chunk: Buffer, _encoding, done) {
      let start = 0;
      for (const end of frames.endsIn(chunk)) {
        this.push(chunk.subarray(start, end));
        start = end;
      }
      if (start < chunk.length) this.push(chunk.subarray(start));
      done();
    },
  });
}

/** What the scan of the frames expects next. */
type Expected = 'frame header' | 'block header' | 'end of frame' | 'no zstd';

/** Finds the ends of frames in consecutive chunks. */
class FrameEnds {
  #expected: Expected = 'frame header';
  /** The bytes of the header that is being read. A header may span chunks. */
  #header: number[] = [];
  /** How many bytes of content come before the expected part. */
  #contentBytes = 0;
  #hasChecksum = false;

  /** Returns the offsets in a chunk at which a frame ends, in ascending order. */
  endsIn(chunk: Buffer): number[] {
    const ends: number[] = [];
    let at = 0;
    while (at < chunk.length && this.#expected !== 'no zstd') {
      if (this.#contentBytes > 0) {
        const skipped = Math.min(this.#contentBytes, chunk.length - at);
        this.#contentBytes -= skipped;
        at += skipped;
      } else {
        this.#header.push(chunk[at] ?? 0);
        at += 1;
        this.#readHeader();
      }
      if (this.#contentBytes === 0 && this.#expected === 'end of frame') {
        ends.push(at);
        this.#expected = 'frame header';
      }
    }
    return ends;
  }

  #readHeader(): void {
    if (this.#expected === 'frame header') this.#readFrameHeader();
    else this.#readBlockHeader();
  }

  #readFrameHeader(): void {
    const header = Buffer.from(this.#header);
    if (header.length < MAGIC_BYTES) return;
    const magic = header.readUInt32LE();
    if (magic >= SKIPPABLE_MAGIC && magic <= SKIPPABLE_MAGIC + 0xf) {
      if (header.length < 2 * MAGIC_BYTES) return;
      this.#expect('end of frame', header.readUInt32LE(MAGIC_BYTES));
      return;
    }
    if (magic !== FRAME_MAGIC) {
      this.#expect('no zstd', 0);
      return;
    }
    const descriptor = header[MAGIC_BYTES];
    if (descriptor === undefined) return;
    if (header.length < headerBytes(descriptor)) return;
    this.#hasChecksum = (descriptor & 0b100) !== 0;
    this.#expect('block header', 0);
  }

  #readBlockHeader(): void {
    if (this.#header.length < BLOCK_HEADER_BYTES) return;
    const header = Buffer.from(this.#header).readUIntLE(0, BLOCK_HEADER_BYTES);
    const isLast = (header & 1) !== 0;
    const type = (header >> 1) & 0b11;
    if (type === BLOCK_TYPE_RESERVED) {
      this.#expect('no zstd', 0);
      return;
    }
    const contentBytes = type === BLOCK_TYPE_RLE ? 1 : header >> 3;
    if (!isLast) this.#expect('block header', contentBytes);
    else
      this.#expect(
        'end of frame',
        contentBytes + (this.#hasChecksum ? CHECKSUM_BYTES : 0),
      );
  }

  /**
   * Ends the current header. @param contentBytes the bytes of content before the expected
   * part
   */
  #expect(expected: Expected, contentBytes: number): void {
    this.#expected = expected;
    this.#contentBytes = contentBytes;
    this.#header = [];
  }
}

/** Returns the size of a frame's header in bytes, including its magic number. */
function headerBytes(descriptor: number): number {
  const isSingleSegment = (descriptor & 0b10_0000) !== 0;
  const dictionaryId = DICTIONARY_ID_BYTES[descriptor & 0b11] ?? 0;
  const contentSize = CONTENT_SIZE_BYTES[descriptor >> 6] ?? 0;
  const window = isSingleSegment ? 0 : 1;
  // A single-segment frame always states the size of its content, in at least one byte.
  return (
    MAGIC_BYTES +
    1 +
    window +
    dictionaryId +
    (isSingleSegment && contentSize === 0 ? 1 : contentSize)
  );
}
