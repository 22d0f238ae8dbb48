/**
 * Writes one future object into the spool: header and rows unchanged, compressed on the way, with every
 * sum of it.
 */
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import type { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { constants, createGzip, createZstdCompress } from 'node:zlib';
import { ByteSums } from '../../core/byte-sums.ts';
import { errorCode, RetryableError } from '../../core/errors.ts';
import type { Compression } from '../../ledger/objects/object-keys.ts';
import type { RowSum } from '../../ledger/row-sum.ts';

const PIECE_BYTES = 256 * 2 ** 10;
const ZSTD_LEVEL = 3;
const GZIP_LEVEL = 6;

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
  readonly #header: Buffer;
  readonly #plain = new ByteSums();
  readonly #stored = new ByteSums();
  readonly #input: Transform;
  readonly #written: Promise<void>;

  /**
   * @param header the header line as it was sent, with its line end
   * @param rows whoever writes the rows sums them there
   */
  constructor(spool: SpoolFile, header: Buffer, compression: Compression, rows: RowSum) {
    this.#spool = spool;
    this.#rows = rows;
    this.#header = header;
    this.#input = this.#plain.through();
    const compressor = openCompressor(compression);
    const steps = [this.#input, ...(compressor === undefined ? [] : [compressor]), this.#stored.through()];
    const file = createWriteStream(spool.path, { flush: true });
    this.#written = pipeline([...steps, file]).catch((error: unknown) => {
      throw spoolError(error);
    });
    // Met again by whoever writes next or finishes.
    this.#written.catch(() => undefined);
    this.#input.write(header);
  }

  /** Resolves when there is room for more. `rows` must not change afterwards. @throws RetryableError `SPOOL_…` */
  async write(rows: Buffer): Promise<void> {
    if (this.#input.write(rows)) return;
    // Where writing broke, that is the reason, not what it did to the input.
    const drained = once(this.#input, 'drain').catch(() => this.#written);
    await Promise.race([drained, this.#written]);
  }

  /** Everything on disk, durably. @throws RetryableError `SPOOL_…` */
  async finish(): Promise<Spooled> {
    this.#input.end();
    await this.#written;
    const object = this.#stored.facts();
    return {
      ...this.#spool,
      ...this.#plain.facts(),
      rows: this.#rows.rows,
      objectBytes: object.bytes,
      objectSha256: object.sha256,
      digest: this.#rows.digest.hex(),
      rowForm: this.#rows.form(this.#header),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#input.destroy();
    await this.#written.catch(() => undefined);
  }
}

function openCompressor(compression: Compression): Transform | undefined {
  if (compression === 'none') return undefined;
  if (compression === 'gzip') return createGzip({ level: GZIP_LEVEL, chunkSize: PIECE_BYTES });
  const { ZSTD_c_compressionLevel: level, ZSTD_c_checksumFlag: checksum } = constants;
  return createZstdCompress({ params: { [level]: ZSTD_LEVEL, [checksum]: 1 }, chunkSize: PIECE_BYTES });
}

/** A full disk is freed, a lost mount comes back: the whole question is asked again later. */
function spoolError(error: unknown): RetryableError {
  const code = errorCode(error);
  return new RetryableError(`Cannot write the spool file: ${code}; check the disk of the object store`, {
    code: `SPOOL_${code}`,
    cause: error,
  });
}
