/**
 * What an on-demand export brought, assembled once into a file, so that its size is known and any range
 * of it can be sent again. Files are a cache: they are made anew from the objects whenever one is gone.
 */
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { absent, ByteSums } from '../../core/byte-sums.ts';
import { StatusError } from '../http/status-error.ts';

const KEPT_MS = 24 * 3_600_000;
/** Of all files; the oldest go first. A file that is larger alone is for `export --out`. */
const DOWNLOADS_BYTES_MAX = 20 * 2 ** 30;
/** Files made at once: each is unpacked, hashed and written whole. */
const MAKING_MAX = 2;

interface MadeFile {
  readonly bytes: number;
  /** Names the content: the same tag, the same bytes. */
  readonly tag: string;
}

/** The CSV that an order brought, whole. */
export interface Download extends MadeFile {
  readonly fileName: string;
  /** @param end exclusive */
  read(range: { readonly start: number; readonly end: number }): Readable;
}

type Produce = (signal: AbortSignal) => AsyncIterable<Buffer>;

export class Downloads {
  readonly #dir: string;
  readonly #bytesMax: number;
  /** A file that is being made is made once, however many ask for it. */
  readonly #making = new Map<string, Promise<MadeFile>>();

  constructor(dir: string, bytesMax = DOWNLOADS_BYTES_MAX) {
    this.#dir = dir;
    this.#bytesMax = bytesMax;
  }

  /**
   * @param name of the file in the cache; `produce` is only called where it is not there yet
   * @throws StatusError 429 where as many files are being made as may be
   */
  async open(name: string, fileName: string, produce: Produce): Promise<Download> {
    const found = (await this.#files()).find((file) => file.name === name && file.isWhole);
    // Another process may remove the file at any moment: what was found or made once is not looked up again.
    const { bytes, tag } = found ?? (await this.#makeOnce(name, produce));
    const path = this.#pathOf(name, tag);
    return {
      bytes,
      tag,
      fileName,
      read: ({ start, end }) => createReadStream(path, { start, end: end - 1 }),
    };
  }

  #makeOnce(name: string, produce: Produce): Promise<MadeFile> {
    const known = this.#making.get(name);
    if (known !== undefined) return known;
    if (this.#making.size >= MAKING_MAX)
      throw new StatusError('resourceExhausted', 'other downloads are being made; try again');
    const making = this.#make(name, produce).finally(() => this.#making.delete(name));
    this.#making.set(name, making);
    return making;
  }

  async #make(name: string, produce: Produce): Promise<MadeFile> {
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    await this.#dropOld();
    const partial = join(this.#dir, `${name}.partial-${process.pid}`);
    const sums = new ByteSums();
    const abort = new AbortController();
    try {
      await pipeline(
        bounded(produce(abort.signal), sums, this.#bytesMax),
        createWriteStream(partial, { flush: true, mode: 0o600 }),
      );
      const tag = sums.sha256();
      await rename(partial, this.#pathOf(name, tag));
      await this.#dropOld();
      return { bytes: Number(sums.bytes), tag };
    } finally {
      abort.abort();
      await rm(partial, { force: true });
    }
  }

  #pathOf(name: string, tag: string): string {
    return join(this.#dir, `${name}.${tag}.csv`);
  }

  /** The newest first. */
  async #files() {
    const files = (await readdir(this.#dir).catch(absent)) ?? [];
    const found = files.map(async (file) => {
      const path = join(this.#dir, file);
      const [name, tag = '', suffix] = file.split('.');
      const { size = 0, mtimeMs = 0 } = (await stat(path).catch(absent)) ?? {};
      return { path, name, tag, isWhole: suffix === 'csv' && mtimeMs > 0, bytes: size, mtimeMs };
    });
    return (await Promise.all(found)).toSorted((a, b) => b.mtimeMs - a.mtimeMs);
  }

  async #dropOld(): Promise<void> {
    let bytes = 0;
    for (const file of await this.#files()) {
      if (file.isWhole) bytes += file.bytes;
      const isTooMuch = file.isWhole && bytes > this.#bytesMax;
      if (isTooMuch || Date.now() - file.mtimeMs > KEPT_MS) await rm(file.path, { force: true });
    }
  }
}

async function* bounded(
  chunks: AsyncIterable<Buffer>,
  sums: ByteSums,
  bytesMax: number,
): AsyncGenerator<Buffer> {
  for await (const chunk of chunks) {
    sums.add(chunk);
    if (sums.bytes > bytesMax) throw new StatusError('resourceExhausted', tooLarge(bytesMax));
    yield chunk;
  }
}

function tooLarge(bytesMax: number): string {
  return `the file would be larger than ${bytesMax} bytes; order a shorter range, or use \`export --out\``;
}
