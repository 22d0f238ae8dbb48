/**
 * What an on-demand export brought, assembled once into a file, so that its size is known and any range
 * of it can be sent again. Files are a cache: they are made anew from the objects whenever one is gone.
 */
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import type { Download } from '../http/ports.ts';
import { StatusError } from '../http/status-error.ts';

const KEPT_MS = 24 * 3_600_000;
/** Files made at once: each is unpacked, hashed and written whole. */
const MAKING_MAX = 2;

type Produce = (signal: AbortSignal) => AsyncIterable<Buffer>;

export class Downloads {
  readonly #dir: string;
  /** A file that is being made is made once, however many ask for it. */
  readonly #making = new Map<string, Promise<void>>();

  constructor(dir: string) {
    this.#dir = dir;
  }

  /**
   * @param name of the file in the cache; `produce` is only called where it is not there yet
   * @throws StatusError 429 where as many files are being made as may be
   */
  async open(name: string, fileName: string, produce: Produce): Promise<Download> {
    const path = join(this.#dir, `${name}.csv`);
    const tagPath = `${path}.sha256`;
    if (!(await isWhole(path, tagPath))) await this.#makeOnce(path, tagPath, produce);
    const [{ size }, tag] = await Promise.all([stat(path), readFile(tagPath, 'utf8')]);
    return {
      fileName,
      bytes: BigInt(size),
      tag,
      read: ({ start, end }, signal) =>
        createReadStream(path, { start: Number(start), end: Number(end) - 1, signal }),
    };
  }

  #makeOnce(path: string, tagPath: string, produce: Produce): Promise<void> {
    const known = this.#making.get(path);
    if (known !== undefined) return known;
    if (this.#making.size >= MAKING_MAX) {
      throw StatusError.ofGateway('resourceExhausted', 'other downloads are being made; try again');
    }
    const making = this.#make(path, tagPath, produce).finally(() => this.#making.delete(path));
    this.#making.set(path, making);
    return making;
  }

  async #make(path: string, tagPath: string, produce: Produce): Promise<void> {
    await mkdir(this.#dir, { recursive: true });
    await this.#dropOld();
    const partial = `${path}.partial-${process.pid}`;
    const hash = createHash('sha256');
    const abort = new AbortController();
    try {
      await pipeline(
        produce(abort.signal),
        async function* (chunks: AsyncIterable<Buffer>) {
          for await (const chunk of chunks) {
            hash.update(chunk);
            yield chunk;
          }
        },
        createWriteStream(partial, { flush: true }),
      );
      await rename(partial, path);
      await writeFile(tagPath, hash.digest('hex'), { flush: true });
    } catch (error) {
      abort.abort();
      await rm(partial, { force: true });
      throw error;
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

/** The tag is written last, so where both are, the file is whole. */
async function isWhole(...paths: readonly string[]): Promise<boolean> {
  const found = await Promise.allSettled(paths.map((path) => stat(path)));
  return found.every(({ status }) => status === 'fulfilled');
}
