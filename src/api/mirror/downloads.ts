/**
 * What an on-demand export brought, assembled once into a file, so that its size is known and any range
 * of it can be sent again. Files are a cache: they are made anew from the objects whenever one is gone.
 */
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { absent } from '../../core/byte-sums.ts';
import type { ByteRange } from '../http/answer/ranges.ts';
import { StatusError } from '../http/status-error.ts';

const KEPT_MS = 24 * 3_600_000;
/** Of all files; the oldest go first. A file that is larger alone is for `export --out`. */
export const DOWNLOADS_BYTES_MAX = 20 * 2 ** 30;
/** Files made at once: each is unpacked, hashed and written whole. */
const MAKING_MAX = 2;

interface FileFacts {
  readonly bytes: bigint;
  /** Names the content: the same tag, the same bytes. */
  readonly tag: string;
}

/** The CSV that an order brought, whole. */
export interface Download extends FileFacts {
  readonly fileName: string;
  read(range: ByteRange, signal: AbortSignal): AsyncIterable<Buffer>;
}

type Produce = (signal: AbortSignal) => AsyncIterable<Buffer>;

export class Downloads {
  readonly #dir: string;
  /** A file that is being made is made once, however many ask for it. */
  readonly #making = new Map<string, Promise<FileFacts>>();

  readonly #bytesMax: number;

  constructor(dir: string, bytesMax = DOWNLOADS_BYTES_MAX) {
    this.#dir = dir;
    this.#bytesMax = bytesMax;
  }

  /**
   * @param name of the file in the cache; `produce` is only called where it is not there yet
   * @throws StatusError 429 where as many files are being made as may be
   */
  async open(name: string, fileName: string, produce: Produce): Promise<Download> {
    const path = join(this.#dir, `${name}.csv`);
    const tagPath = `${path}.sha256`;
    // Another process may remove the file at any moment: what was found or made once is not looked up again.
    const facts = (await readFacts(path, tagPath)) ?? (await this.#makeOnce(path, tagPath, produce));
    return {
      ...facts,
      fileName,
      read: ({ start, end }, signal) =>
        createReadStream(path, { start: Number(start), end: Number(end) - 1, signal }),
    };
  }

  #makeOnce(path: string, tagPath: string, produce: Produce): Promise<FileFacts> {
    const known = this.#making.get(path);
    if (known !== undefined) return known;
    if (this.#making.size >= MAKING_MAX) {
      throw StatusError.ofGateway('resourceExhausted', 'other downloads are being made; try again');
    }
    const making = this.#make(path, tagPath, produce).finally(() => this.#making.delete(path));
    this.#making.set(path, making);
    return making;
  }

  async #make(path: string, tagPath: string, produce: Produce): Promise<FileFacts> {
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    await this.#dropOld();
    const partial = `${path}.partial-${process.pid}`;
    const hash = createHash('sha256');
    const abort = new AbortController();
    const bytesMax = this.#bytesMax;
    let bytes = 0;
    try {
      await pipeline(
        produce(abort.signal),
        async function* (chunks: AsyncIterable<Buffer>) {
          for await (const chunk of chunks) {
            bytes += chunk.length;
            if (bytes > bytesMax) throw tooLarge(bytesMax);
            hash.update(chunk);
            yield chunk;
          }
        },
        createWriteStream(partial, { flush: true, mode: 0o600 }),
      );
      await rename(partial, path);
      const tag = hash.digest('hex');
      await writeFile(tagPath, tag, { flush: true });
      await this.#dropOldest(path);
      return { bytes: BigInt(bytes), tag };
    } catch (error) {
      abort.abort();
      await rm(partial, { force: true });
      throw error;
    }
  }

  /** @param kept the newest, which is about to be sent */
  async #dropOldest(kept: string): Promise<void> {
    const names = (await readdir(this.#dir)).filter((name) => name.endsWith('.csv'));
    const paths = names.map((name) => join(this.#dir, name));
    const found = await Promise.all(
      paths.map(async (path) => {
        const { size, mtimeMs } = await stat(path).catch(() => ({ size: 0, mtimeMs: 0 }));
        return { path, size, mtimeMs };
      }),
    );
    let bytes = found.reduce((sum, { size }) => sum + size, 0);
    for (const { path, size } of found.toSorted((a, b) => a.mtimeMs - b.mtimeMs)) {
      if (bytes <= this.#bytesMax || path === kept) continue;
      await Promise.all([rm(path, { force: true }), rm(`${path}.sha256`, { force: true })]);
      bytes -= size;
    }
  }

  async #dropOld(): Promise<void> {
    for (const name of await readdir(this.#dir)) {
      const path = join(this.#dir, name);
      const found = await stat(path).catch(() => undefined);
      if (found !== undefined && Date.now() - found.mtimeMs > KEPT_MS) await rm(path, { force: true });
    }
  }
}

function tooLarge(bytesMax: number): StatusError {
  return StatusError.ofGateway(
    'resourceExhausted',
    `the file would be larger than ${bytesMax} bytes; order a shorter range, or use \`export --out\``,
  );
}

/** The tag is written last, so where both are, the file is whole. */
async function readFacts(path: string, tagPath: string): Promise<FileFacts | undefined> {
  const [found, tag] = await Promise.all([stat(path).catch(absent), readFile(tagPath, 'utf8').catch(absent)]);
  return found === undefined || tag === undefined ? undefined : { bytes: BigInt(found.size), tag };
}
