/**
 * The two files of one night: the changed records, and the pages that changed with them.
 * Each file is written to the spool and then published in one piece, under a name that no
 * other night uses.
 */
import { randomBytes } from 'node:crypto';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import { ByteCounter, undefinedIfMissing } from '../files/byte-counter.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import { PROOF_PREFIX } from './log.ts';
import { type Place, placePath } from './pages.ts';
import type { ByteRange } from './proof-files.ts';

const BUFFER_BYTES = 2 ** 20;

/**
 * Returns the name of a night's files. If the process is killed, the next attempt at that
 * night uses a different name.
 */
export function nightFileName(night: number): string {
  return `${night}-${randomBytes(4).toString('hex')}`;
}

/**
 * A file that is being written to the spool. It is created only with its first bytes,
 * because most nights of an idle mirror add none.
 */
export class NightFile implements AsyncDisposable {
  readonly #name: string;
  readonly #isRecords: boolean;
  readonly #objects: ObjectStore;
  readonly #sums = new ByteCounter();
  #spooled: SpooledFile | undefined;
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #bytes = 0;

  /** @param name see `nightFileName` */
  constructor(name: string, isRecords: boolean, objects: ObjectStore) {
    this.#name = name;
    this.#isRecords = isRecords;
    this.#objects = objects;
  }

  /**
   * Appends a text and, to make the file easier to read, a line break.
   * @returns the location of the text in the published file, without the line break
   */
  async add(text: string): Promise<Place> {
    const content = Buffer.from(`${text}\n`);
    const at = this.#bytes;
    this.#bytes += content.length;
    this.#sums.add(content);
    this.#pending.push(content);
    this.#pendingBytes += content.length;
    if (this.#pendingBytes >= BUFFER_BYTES) await this.flush();
    return [this.#name, at, content.length - 1];
  }

  /** Reads from the spooled file, which contains only flushed bytes. */
  async read({ start, end }: ByteRange): Promise<Buffer> {
    const content = Buffer.alloc(end - start);
    const { handle } = await this.#spool();
    await handle.read(content, 0, content.length, start);
    return content;
  }

  /** Publishes the file, unless nothing was added to it. */
  async publish(signal: AbortSignal): Promise<void> {
    if (this.#bytes === 0) return;
    await this.flush();
    const key = PROOF_PREFIX + placePath([this.#name, 0, 0], this.#isRecords);
    const { path } = await this.#spool();
    await this.#objects.publishFile(key, path, this.#sums.facts(), signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#spooled === undefined) return;
    await this.#spooled.handle.close();
    await unlink(this.#spooled.path).catch(undefinedIfMissing);
  }

  async flush(): Promise<void> {
    const content = Buffer.concat(this.#pending);
    this.#pending = [];
    this.#pendingBytes = 0;
    if (content.length === 0) return;
    const { handle } = await this.#spool();
    await handle.writeFile(content);
  }

  async #spool(): Promise<SpooledFile> {
    if (this.#spooled === undefined) {
      const kind = this.#isRecords ? 'ledgers' : 'pages';
      const path = await this.#objects.spoolPath(`proof.${kind}.${this.#name}`);
      this.#spooled = { path, handle: await open(path, 'wx+') };
    }
    return this.#spooled;
  }
}

interface SpooledFile {
  readonly path: string;
  readonly handle: FileHandle;
}
