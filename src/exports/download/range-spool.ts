/**
 * Writes the rows of a range of seconds to a new spool file, created with the first
 * row. Header and rows are compressed but otherwise unchanged, and the content is
 * summed on the way.
 */
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import type { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { constants, createGzip, createZstdCompress } from 'node:zlib';
import { ByteCounter, type FileFacts } from '../../files/byte-counter.ts';
import { errorCode, RetryableError } from '../../errors/errors.ts';
import type { Compression } from '../../ledger/object-keys.ts';
import { RowSum } from '../../ledger/digest.ts';

const PIECE_BYTES = 256 * 2 ** 10;
const ZSTD_LEVEL = 3;
const GZIP_LEVEL = 6;

/** The file in which an object is spooled. */
export interface SpoolFile {
  readonly name: string;
  readonly path: string;
}

export interface SpoolOptions {
  readonly compression: Compression;
  /** Chooses the location of a new spool file. */
  readonly spoolFile: () => Promise<SpoolFile>;
}

/**
 * A finished spool file and its content. `bytes` and `sha256` describe the plain CSV,
 * including the header.
 */
export interface Spooled extends SpoolFile, FileFacts {
  readonly rows: number;
  readonly objectBytes: bigint;
  readonly objectSha256: string;
  readonly digest: string;
  readonly rowForm: string;
}

export class RangeSpool implements AsyncDisposable {
  /** The range in seconds; `to` is exclusive. Either may be infinite. */
  readonly from: number;
  readonly to: number;
  /** The sum of the rows. A caller that adds rows must also add them to this sum. */
  readonly sum = new RowSum();
  readonly #options: SpoolOptions;
  #added: Buffer[] = [];
  #object: ReturnType<typeof openObject> | undefined;

  constructor(from: number, to: number, options: SpoolOptions) {
    this.from = from;
    this.to = to;
    this.#options = options;
  }

  holds(second: number): boolean {
    return second >= this.from && second < this.to;
  }

  /**
   * Adds rows for the next `flush`. The caller must not modify the buffer afterwards.
   */
  add(rows: Buffer): void {
    this.#added.push(rows);
  }

  /**
   * Writes the rows that were added. Resolves when there is room for more.
   * @param header the header line as it was sent, with its line break; only the first
   *   call writes it
   * @throws RetryableError `SPOOL_…`
   */
  async flush(header: Buffer): Promise<void> {
    if (this.#added.length === 0) return;
    const rows = Buffer.concat(this.#added);
    this.#added = [];
    this.#object ??= openObject(header, this.#options);
    const { input, written } = await this.#object;
    if (input.write(rows)) return;
    // If the write failed, throw its error and not the one it caused in the input.
    const drained = once(input, 'drain').catch(() => written);
    await Promise.race([drained, written]);
  }

  /**
   * Flushes everything to disk, durably.
   * @returns undefined if there were no rows
   * @throws RetryableError `SPOOL_…`
   */
  async finish(): Promise<Spooled | undefined> {
    if (this.#object === undefined) return undefined;
    const { header, file, plain, stored, input, written } = await this.#object;
    input.end();
    await written;
    const { bytes: objectBytes, sha256: objectSha256 } = stored.facts();
    const { rows, digest } = this.sum;
    const sums = { rows, digest: digest.hex(), rowForm: this.sum.form(header) };
    return { ...file, ...plain.facts(), objectBytes, objectSha256, ...sums };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const object = await this.#object?.catch(() => undefined);
    object?.input.destroy();
    await object?.written.catch(() => undefined);
  }
}

async function openObject(
  header: Buffer,
  { compression, spoolFile }: SpoolOptions,
) {
  const file = await spoolFile();
  const plain = new ByteCounter();
  const stored = new ByteCounter();
  const input = plain.through();
  const output = createWriteStream(file.path, { flush: true });
  const written = pipeline([
    input,
    ...compressors(compression),
    stored.through(),
    output,
  ]).catch(spoolError);
  // The next write, or `finish`, throws this error.
  written.catch(() => undefined);
  input.write(header);
  return { header, file, plain, stored, input, written };
}

function compressors(compression: Compression): Transform[] {
  if (compression === 'none') return [];
  if (compression === 'gzip')
    return [createGzip({ level: GZIP_LEVEL, chunkSize: PIECE_BYTES })];
  const { ZSTD_c_compressionLevel: level, ZSTD_c_checksumFlag: checksum } =
    constants;
  return [
    createZstdCompress({
      params: { [level]: ZSTD_LEVEL, [checksum]: 1 },
      chunkSize: PIECE_BYTES,
    }),
  ];
}

/**
 * Throws a retryable error, because the whole request can be repeated once the disk has
 * room again or a lost mount is back.
 */
function spoolError(cause: unknown): never {
  const code = errorCode(cause);
  const message = `Cannot write the spool file: ${code}; check the disk of the object store`;
  throw new RetryableError(message, { code: `SPOOL_${code}`, cause });
}
