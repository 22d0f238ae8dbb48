/**
 * Writes the file of an object: a header line and rows, compressed in frames. A frame
 * can be decompressed without the ones before it, so that reading an hour does not mean
 * reading a month. All frames together are one zstd or gzip file.
 */
import { type FileHandle, open } from 'node:fs/promises';
import { Transform } from 'node:stream';
import { constants, createGzip, createZstdCompress } from 'node:zlib';
import { errorCode, RetryableError } from '../../errors/errors.ts';
import { ByteCounter, type FileFacts } from '../../files/byte-counter.ts';
import type { Frame } from '../../ledger/manifest.ts';
import type { Compression } from '../../ledger/object-keys.ts';
import { instantOf } from '../../ledger/ranges.ts';

/** How long the frames of an object are, in bytes of plain CSV. */
export interface FrameSizes {
  readonly first: number;
  readonly next: number;
}

/**
 * A frame ends with the first rows that make it this long. The first one is longer,
 * because some libraries (Node's `zstdDecompressSync`, for one) read only the first
 * frame of a file and report no error. An object of ordinary size therefore has only
 * this frame. Smaller frames compress worse; larger ones make a reader of a few rows
 * read more bytes.
 */
export const FRAME_SIZES: FrameSizes = {
  first: 24 * 2 ** 20,
  next: 4 * 2 ** 20,
};
const PIECE_BYTES = 256 * 2 ** 10;
const ZSTD_LEVEL = 3;
const GZIP_LEVEL = 6;

/** The seconds of the earliest and the latest row in a set of rows. */
export interface SecondsHeld {
  readonly earliest: number;
  readonly latest: number;
}

/**
 * A finished file. `bytes` and `sha256` describe the plain CSV, including the header.
 */
export interface WrittenObject extends FileFacts {
  readonly objectBytes: bigint;
  readonly objectSha256: string;
  /** The frames of the object; undefined if it has only one. */
  readonly frames: readonly Frame[] | undefined;
}

/** The frame that is being written. */
interface OpenFrame {
  /** The compressor. */
  readonly input: Transform;
  /** Resolves when all of the frame is in the file. */
  readonly written: Promise<void>;
  /** The offset of the frame in the file. */
  readonly offset: bigint;
  plainBytes: number;
  seconds: SecondsHeld;
}

export class ObjectFile implements AsyncDisposable {
  readonly header: Buffer;
  readonly #compression: Compression;
  readonly #sizes: FrameSizes;
  readonly #plain = new ByteCounter();
  readonly #stored = new ByteCounter();
  readonly #file: FileHandle;
  readonly #frames: Frame[] = [];
  #frame: OpenFrame | undefined;
  /** The last call of `write`: rows are written in the order of the calls. */
  #writing: Promise<void> = Promise.resolve();

  private constructor(
    file: FileHandle,
    header: Buffer,
    compression: Compression,
    sizes: FrameSizes,
  ) {
    this.#file = file;
    this.header = header;
    this.#compression = compression;
    this.#sizes = sizes;
  }

  /**
   * Creates the file, or empties it if it exists.
   * @param header the header line as it was sent, with its line break
   * @throws RetryableError `SPOOL_…`
   */
  static async create(
    path: string,
    header: Buffer,
    compression: Compression,
    sizes: FrameSizes = FRAME_SIZES,
  ): Promise<ObjectFile> {
    const file = await open(path, 'w').catch(fail);
    return new ObjectFile(file, header, compression, sizes);
  }

  /**
   * Writes whole rows. Resolves when the rows are compressed and their buffer can be
   * reused. The next call need not wait for that.
   * @throws RetryableError `SPOOL_…`
   */
  write(rows: Buffer, seconds: SecondsHeld): Promise<void> {
    this.#writing = this.#writing.then(() => this.#write(rows, seconds));
    return this.#writing;
  }

  /**
   * Flushes everything to disk, durably.
   * @throws RetryableError `SPOOL_…`
   */
  async finish(): Promise<WrittenObject> {
    await this.#writing;
    if (this.#frame !== undefined) await this.#endFrame(this.#frame);
    await this.#file.sync().catch(fail);
    await this.#file.close().catch(fail);
    const { bytes: objectBytes, sha256: objectSha256 } = this.#stored.facts();
    const frames = this.#frames.length > 1 ? this.#frames : undefined;
    return { ...this.#plain.facts(), objectBytes, objectSha256, frames };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#frame?.input.destroy();
    await this.#writing.catch(() => undefined);
    await this.#frame?.written.catch(() => undefined);
    // Closing it again does no harm.
    await this.#file.close().catch(() => undefined);
  }

  async #write(rows: Buffer, seconds: SecondsHeld): Promise<void> {
    const { first, next } = this.#sizes;
    const frameBytes = this.#frames.length === 0 ? first : next;
    if (this.#frame !== undefined && this.#frame.plainBytes >= frameBytes)
      await this.#endFrame(this.#frame);
    this.#frame ??= this.#openFrame(seconds);
    const { input, written } = this.#frame;
    this.#frame.seconds = unionOf(this.#frame.seconds, seconds);
    this.#frame.plainBytes += rows.length;
    this.#plain.add(rows);
    const compressed = new Promise<void>((resolve, reject) => {
      input.write(rows, (error) => {
        if (error) reject(error);
        else resolve();
      });
    });
    // If the file failed, throw its error and not the one it caused in the input.
    await Promise.race([compressed.catch(() => written), written]);
  }

  #openFrame(seconds: SecondsHeld): OpenFrame {
    const input = openCompressor(this.#compression);
    const written = this.#store(input).catch(fail);
    // The next write, or `finish`, throws this error.
    written.catch(() => undefined);
    const offset = this.#stored.bytes;
    const frame = { input, written, offset, plainBytes: 0, seconds };
    if (offset === 0n) {
      this.#plain.add(this.header);
      input.write(this.header);
    }
    return frame;
  }

  async #endFrame({
    input,
    written,
    offset,
    seconds,
  }: OpenFrame): Promise<void> {
    input.end();
    await written;
    this.#frame = undefined;
    this.#frames.push({
      offset,
      bytes: this.#stored.bytes - offset,
      earliest: instantOf(seconds.earliest),
      latest: instantOf(seconds.latest),
    });
  }

  /** Writes what a compressor yields to the file. */
  async #store(chunks: AsyncIterable<Buffer>): Promise<void> {
    for await (const chunk of chunks) {
      this.#stored.add(chunk);
      await this.#file.writeFile(chunk);
    }
  }
}

/**
 * Throws a retryable error, because the whole request can be repeated once the disk has
 * room again or a lost mount is back.
 */
function fail(cause: unknown): never {
  const code = errorCode(cause);
  throw new RetryableError(
    `Cannot write the spool file: ${code}; check the disk of the object store`,
    { code: `SPOOL_${code}`, cause },
  );
}

/** Returns the earlier of the two earliest seconds and the later of the two latest. */
export function unionOf(one: SecondsHeld, other: SecondsHeld): SecondsHeld {
  return {
    earliest: Math.min(one.earliest, other.earliest),
    latest: Math.max(one.latest, other.latest),
  };
}

function openCompressor(compression: Compression): Transform {
  if (compression === 'none') return copying();
  if (compression === 'gzip')
    return createGzip({ level: GZIP_LEVEL, chunkSize: PIECE_BYTES });
  const { ZSTD_c_compressionLevel: level, ZSTD_c_checksumFlag: checksum } =
    constants;
  return createZstdCompress({
    params: { [level]: ZSTD_LEVEL, [checksum]: 1 },
    chunkSize: PIECE_BYTES,
  });
}

/** Returns a stream that copies its input, whose buffers are reused. */
function copying(): Transform {
  return new Transform({
    transform: (rows: Buffer, _encoding, done) => done(null, Buffer.from(rows)),
  });
}
