/**
 * What the loader has decided, kept as text on the local disk until the lake is built: so each row is decided
 * once for the warehouse and the lake. A segment's text is named by its object, so that it says the same
 * whichever load wrote it. Where it is missing, the warehouse sends the rows.
 */
import { randomUUID } from 'node:crypto';
import { type FileHandle, mkdir, open, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { errorCode } from '../../core/errors.ts';
import { absent } from '../../core/byte-sums.ts';
import type { RowKeeper, SegmentKeeper } from '../../load/ports.ts';
import { sweepFolder } from '../local/scratch.ts';
import type { SegmentMonth } from '../store/warehouse-reader.ts';

const FOLDER = 'rows';
/** Of text that waits for a build; what is more comes from the warehouse. */
const KEPT_BYTES_MAX = 8 * 2 ** 30;

/** What a build asks of it. */
export type KeptRows = Pick<RowSpool, 'find' | 'forget'>;

export class RowSpool implements RowKeeper {
  readonly #folder: string;
  #keptBytes = 0;

  /** @param scratchDir of this machine */
  constructor(scratchDir: string) {
    this.#folder = join(scratchDir, FOLDER);
  }

  open(segment: Parameters<typeof nameOf>[0]): SegmentKeeper | undefined {
    if (this.#keptBytes > KEPT_BYTES_MAX) return undefined;
    const path = join(this.#folder, nameOf(segment));
    return new SegmentSpool(path, (bytes) => {
      this.#keptBytes += bytes;
    });
  }

  /** The file of the segment's rows in the month; undefined where it was not kept here. */
  async find(of: SegmentMonth): Promise<string | undefined> {
    const path = join(this.#folder, nameOf(of), of.month);
    const facts = await stat(path).catch(absent);
    return facts?.isFile() === true ? path : undefined;
  }

  /** Removes what the lake has now, and what nobody came for. */
  async forget(of: readonly SegmentMonth[]): Promise<void> {
    for (const name of new Set(of.map(nameOf)))
      await rm(join(this.#folder, name), { recursive: true, force: true });
    this.#keptBytes = 0;
    await sweepFolder(this.#folder);
  }
}

function nameOf({ segmentId, objectSha256 }: Pick<SegmentMonth, 'segmentId' | 'objectSha256'>): string {
  return `${segmentId}-${objectSha256}`;
}

class SegmentSpool implements SegmentKeeper {
  readonly #path: string;
  readonly #partial: string;
  readonly #count: (bytes: number) => void;
  readonly #months = new Map<string, FileHandle>();

  constructor(path: string, count: (bytes: number) => void) {
    this.#path = path;
    this.#partial = `${path}.${randomUUID()}`;
    this.#count = count;
  }

  async write(month: string, lines: Buffer): Promise<void> {
    let file = this.#months.get(month);
    if (file === undefined) {
      await mkdir(this.#partial, { recursive: true });
      file = await open(join(this.#partial, month), 'wx', 0o600);
      this.#months.set(month, file);
    }
    this.#count(lines.length);
    await file.appendFile(lines);
  }

  async keep(): Promise<void> {
    for (const file of this.#months.values()) await file.close();
    if (this.#months.size === 0) return;
    try {
      await rename(this.#partial, this.#path);
    } catch (error) {
      // Another load of the same object was sooner: it says the same.
      if (errorCode(error) !== 'ENOTEMPTY' && errorCode(error) !== 'EEXIST') throw error;
      await this.discard();
    }
  }

  async discard(): Promise<void> {
    for (const file of this.#months.values()) await file.close().catch(() => undefined);
    await rm(this.#partial, { recursive: true, force: true });
  }
}
