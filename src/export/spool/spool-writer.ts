/**
 * Writes one future object into the spool: header and rows unchanged, compressed on the way, with every
 * sum of it.
 */
import { createHash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import type { Transform } from 'node:stream';
import { constants, createGzip, createZstdCompress } from 'node:zlib';
import { errorCode, PermanentError, RetryableError } from '../../core/errors.ts';
import type { Compression } from '../../ledger/objects/object-keys.ts';
import type { RowSum } from '../../ledger/row-sum.ts';

const PIECE_BYTES = 256 * 2 ** 10;
const ZSTD_LEVEL = 3;
const GZIP_LEVEL = 6;
/** The disk is given its work as it comes, so that the end need not wait for all of it. */
const FLUSH_BYTES = 32 * 2 ** 20;

/** Where an object is spooled. */
export interface SpoolFile {
  readonly name: string;
  readonly path: string;
}

/** A finished spool file and what is in it. */
export interface Spooled extends SpoolFile {
  readonly rows: number;
  /** Of the plain CSV, header included. */
  readonly bytes: bigint;
  readonly sha256: string;
  readonly objectBytes: bigint;
  readonly objectSha256: string;
  readonly digest: string;
  readonly rowForm: string;
}

export class SpoolWriter implements AsyncDisposable {
  readonly #spool: SpoolFile;
  readonly #rows: RowSum;
  readonly #file: FileHandle;
  readonly #header: Buffer;
  readonly #compressor: Transform | undefined;
  /** Copies what the compressor gives into the file. */
  readonly #draining: Promise<void>;
  readonly #plainHash = createHash('sha256');
  readonly #objectHash = createHash('sha256');
  #bytes = 0;
  #objectBytes = 0;
  #writing: Promise<void> = Promise.resolve();
  #unflushedBytes = 0;
  #flushing: Promise<void> | undefined;
  /** The system tells of a failed flush once: it is kept here for whoever writes next. */
  #flushFailure: Error | undefined;
  #isClosed = false;

  private constructor(
    spool: SpoolFile,
    file: FileHandle,
    header: Buffer,
    compression: Compression,
    rows: RowSum,
  ) {
    this.#spool = spool;
    this.#rows = rows;
    this.#file = file;
    this.#header = header;
    this.#compressor = compressorOf(compression);
    this.#draining = this.#compressor === undefined ? Promise.resolve() : this.#drain(this.#compressor);
    // Met again by whoever writes next or finishes.
    this.#draining.catch(() => undefined);
  }

  /**
   * @param header the header line as it was sent, with its line end
   * @param rows whoever writes the rows sums them there
   */
  static async create(
    spool: SpoolFile,
    header: Buffer,
    compression: Compression,
    rows: RowSum,
  ): Promise<SpoolWriter> {
    const file = await open(spool.path, 'w').catch((error: unknown) => {
      throw spoolError('open', error);
    });
    const writer = new SpoolWriter(spool, file, header, compression, rows);
    void writer.write(header);
    return writer;
  }

  /** Resolves when `piece` is compressed or stored, in the order of the calls; until then it must not change. */
  write(piece: Buffer): Promise<void> {
    this.#plainHash.update(piece);
    this.#bytes += piece.length;
    const compressor = this.#compressor;
    this.#writing =
      compressor === undefined
        ? this.#writing.then(() => this.#store(piece))
        : this.#compress(compressor, piece);
    // Met again by whoever writes next or finishes.
    this.#writing.catch(() => undefined);
    return this.#writing;
  }

  /** Writes them as one: each write of a compressor has its price. */
  writeJoined(windows: readonly Buffer[]): Promise<void> {
    const [first] = windows;
    if (first === undefined) return this.#writing;
    return this.write(windows.length === 1 ? first : Buffer.concat(windows));
  }

  /** Everything on disk, durably. @throws RetryableError `SPOOL_…` */
  async finish(): Promise<Spooled> {
    this.#compressor?.end();
    await this.#draining;
    await this.#writing;
    await this.#flushing;
    await this.#file.sync().catch((error: unknown) => {
      throw spoolError('sync', error);
    });
    if (this.#flushFailure !== undefined) throw this.#flushFailure;
    await this.#close();
    const sha256 = this.#plainHash.digest('hex');
    return {
      ...this.#spool,
      rows: this.#rows.rows,
      bytes: BigInt(this.#bytes),
      sha256,
      objectBytes: BigInt(this.#objectBytes),
      objectSha256: this.#compressor === undefined ? sha256 : this.#objectHash.digest('hex'),
      digest: this.#rows.digest.hex(),
      rowForm: this.#rows.form(withoutLineEnd(this.#header)),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#compressor?.destroy();
    await this.#draining.catch(() => undefined);
    await this.#writing.catch(() => undefined);
    await this.#close();
  }

  async #close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#flushing;
    await this.#file.close();
  }

  async #compress(compressor: Transform, piece: Buffer): Promise<void> {
    const before = this.#writing;
    const compressed = new Promise<void>((resolve, reject) => {
      compressor.write(piece, (error) => (error ? reject(error) : resolve()));
    });
    // Where the file broke, that ended the compressor, and is the reason.
    const reasoned = compressed.catch(async (error: unknown) => {
      await this.#draining;
      throw error;
    });
    await Promise.all([before, reasoned]);
  }

  async #drain(compressor: Transform): Promise<void> {
    for await (const piece of compressor as AsyncIterable<Buffer>) {
      this.#objectHash.update(piece);
      await this.#store(piece);
    }
  }

  async #store(piece: Buffer): Promise<void> {
    if (this.#flushFailure !== undefined) throw this.#flushFailure;
    this.#objectBytes += piece.length;
    try {
      for (let written = 0; written < piece.length;) {
        written += (await this.#file.write(piece, written)).bytesWritten;
      }
    } catch (error) {
      throw spoolError('write', error);
    }
    this.#unflushedBytes += piece.length;
    if (this.#unflushedBytes >= FLUSH_BYTES) this.#flushing ??= this.#flush();
  }

  /** One at a time, beside the writes. */
  async #flush(): Promise<void> {
    this.#unflushedBytes = 0;
    try {
      await this.#file.datasync();
    } catch (error) {
      this.#flushFailure = spoolError('sync', error);
    }
    this.#flushing = undefined;
  }
}

function compressorOf(compression: Compression): Transform | undefined {
  if (compression === 'none') return undefined;
  if (compression === 'gzip') return createGzip({ level: GZIP_LEVEL, chunkSize: PIECE_BYTES });
  const { ZSTD_c_compressionLevel: level, ZSTD_c_checksumFlag: checksum } = constants;
  return createZstdCompress({ params: { [level]: ZSTD_LEVEL, [checksum]: 1 }, chunkSize: PIECE_BYTES });
}

export function withoutLineEnd(line: Buffer): Buffer {
  const text = line.toString('latin1');
  return line.subarray(0, text.endsWith('\r\n') ? -2 : -1);
}

/** A full disk is freed, a lost mount comes back: the whole question is asked again later. */
export function spoolError(action: string, error: unknown): Error {
  if (error instanceof PermanentError || error instanceof RetryableError) return error;
  const code = errorCode(error);
  return new RetryableError(`Cannot ${action} the spool file: ${code}; check the disk of the object store`, {
    code: `SPOOL_${code}`,
    cause: error,
  });
}
