/**
 * Writes the rows of a range of seconds to a new spool file, created with the first
 * row. Header and rows are compressed but otherwise unchanged, and the content is
 * summed as it is written.
 */
import { RowSum } from '../../ledger/digest.ts';
import type { Compression } from '../../ledger/object-keys.ts';
import {
  type FrameSizes,
  ObjectFile,
  type SecondsHeld,
  unionOf,
  type WrittenObject,
} from './object-file.ts';

/** The file in which an object is spooled. */
export interface SpoolFile {
  readonly name: string;
  readonly path: string;
}

export interface SpoolOptions {
  readonly compression: Compression;
  /** The sizes of the object's frames; by default those of `object-file.ts`. */
  readonly frameSizes?: FrameSizes | undefined;
  /** Chooses the location of a new spool file. */
  readonly spoolFile: () => Promise<SpoolFile>;
}

/** A finished spool file and its content. */
export interface Spooled extends SpoolFile, WrittenObject {
  readonly rows: number;
  readonly digest: string;
  readonly rowForm: string;
}

const NO_SECONDS: SecondsHeld = { earliest: Infinity, latest: -Infinity };

export class RangeSpool implements AsyncDisposable {
  /** The range in seconds; `to` is exclusive. Either may be infinite. */
  readonly from: number;
  readonly to: number;
  /** The sum of the rows. A caller that adds rows must also add them to this sum. */
  readonly sum = new RowSum();
  readonly #options: SpoolOptions;
  /** The rows that `flush` will write, and their seconds. */
  #added: Buffer[] = [];
  #seconds: SecondsHeld = NO_SECONDS;
  #spooling: Promise<Spooling> | undefined;

  constructor(from: number, to: number, options: SpoolOptions) {
    this.from = from;
    this.to = to;
    this.#options = options;
  }

  holds(second: number): boolean {
    return second >= this.from && second < this.to;
  }

  /**
   * Adds rows for the next `flush`. The caller must not modify the buffer before `flush`
   * has resolved.
   * @param seconds a range of seconds that contains all of the rows
   */
  add(rows: Buffer, seconds: SecondsHeld): void {
    this.#added.push(rows);
    this.#seconds = unionOf(this.#seconds, seconds);
  }

  /**
   * Writes the rows that were added. Resolves when they are compressed, so that their
   * buffers can be reused.
   * @param header the header line as it was sent, with its line break; only the first
   *   call writes it
   * @throws RetryableError `SPOOL_…`
   */
  async flush(header: Buffer): Promise<void> {
    if (this.#added.length === 0) return;
    const [first] = this.#added;
    const rows =
      first !== undefined && this.#added.length === 1
        ? first
        : Buffer.concat(this.#added);
    const seconds = this.#seconds;
    this.#added = [];
    this.#seconds = NO_SECONDS;
    this.#spooling ??= openSpool(header, this.#options);
    const { object } = await this.#spooling;
    await object.write(rows, seconds);
  }

  /**
   * Flushes everything to disk, durably.
   * @returns undefined if there were no rows
   * @throws RetryableError `SPOOL_…`
   */
  async finish(): Promise<Spooled | undefined> {
    if (this.#spooling === undefined) return undefined;
    const { file, object } = await this.#spooling;
    const facts = await object.finish();
    const { rows, digest } = this.sum;
    const rowForm = this.sum.form(object.header);
    return { ...file, ...facts, rows, digest: digest.hex(), rowForm };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const spooling = await this.#spooling?.catch(() => undefined);
    await spooling?.object[Symbol.asyncDispose]();
  }
}

/** A spool file that is being written. */
interface Spooling {
  readonly file: SpoolFile;
  readonly object: ObjectFile;
}

async function openSpool(
  header: Buffer,
  { compression, frameSizes, spoolFile }: SpoolOptions,
): Promise<Spooling> {
  const file = await spoolFile();
  const object = await ObjectFile.create(
    file.path,
    header,
    compression,
    frameSizes,
  );
  return { file, object };
}
