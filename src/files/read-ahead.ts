/**
 * Reads a stream ahead of its reader into a file on disk, so that the producer of the
 * stream can finish while the reader pauses.
 */
import { randomUUID } from 'node:crypto';
import { type FileHandle, mkdir, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';

const CHUNK_BYTES = 64 * 1_024;

/** Where and how far to read ahead. */
export interface ReadAheadOptions {
  /** The folder of the file; it is created if it is missing. */
  readonly dir: string;
  /**
   * The size of the file, which is used as a ring. When it is full, the input waits for
   * the reader.
   */
  readonly bytesMax: number;
}

/**
 * Returns a stream of the same bytes. If `input` fails, the returned stream delivers the
 * bytes before the failure and then fails too. If the reader stops early, `input` is
 * closed at its next chunk.
 * @throws whatever opening the file throws
 */
export async function readAhead(
  input: AsyncIterable<Buffer>,
  { dir, bytesMax }: ReadAheadOptions,
): Promise<Readable> {
  await mkdir(dir, { recursive: true });
  const path = join(dir, `ahead-${randomUUID()}`);
  const file = await open(path, 'wx+', 0o600);
  // An open file needs no name, and without one it cannot outlive a killed process.
  await rm(path);
  const ring = new Ring(file, bytesMax);
  const filling = ring.fill(input);
  async function leave(): Promise<void> {
    ring.leave();
    await filling;
    await file.close();
  }

  // Clean up on `close` and not at the end of `drain`, which never begins if the reader
  // stops before its first chunk.
  return Readable.from(ring.drain(), { objectMode: false }).once(
    'close',
    () => void leave(),
  );
}

/** A file that one side fills and the other drains, both at the same time. */
class Ring {
  readonly #file: FileHandle;
  readonly #bytesMax: number;
  /** How many bytes were ever written, and how many of them were taken. */
  #written = 0;
  #taken = 0;
  /** Whether the input has ended. */
  #isOver = false;
  /** Whether the reader has left. */
  #isLeft = false;
  #failure: { readonly error: unknown } | undefined;
  /** Settled when one of these fields changes. */
  #change = Promise.withResolvers<void>();

  constructor(file: FileHandle, bytesMax: number) {
    this.#file = file;
    this.#bytesMax = bytesMax;
  }

  async fill(input: AsyncIterable<Buffer>): Promise<void> {
    try {
      for await (const chunk of input) {
        await this.#write(chunk);
        if (this.#isLeft) break;
      }
    } catch (error) {
      this.#failure = { error };
    } finally {
      this.#isOver = true;
      this.#noteChange();
    }
  }

  async *drain(): AsyncGenerator<Buffer> {
    for (;;) {
      const available = this.#written - this.#taken;
      if (available === 0 && this.#isOver) break;
      if (available === 0) {
        await this.#change.promise;
        continue;
      }
      const at = this.#taken % this.#bytesMax;
      const length = Math.min(CHUNK_BYTES, available, this.#bytesMax - at);
      const chunk = Buffer.allocUnsafe(length);
      const { bytesRead } = await this.#file.read(chunk, 0, length, at);
      this.#taken += bytesRead;
      this.#noteChange();
      yield chunk.subarray(0, bytesRead);
    }
    if (this.#failure !== undefined) throw this.#failure.error;
  }

  leave(): void {
    this.#isLeft = true;
    this.#noteChange();
  }

  async #write(chunk: Buffer): Promise<void> {
    let rest = chunk;
    while (rest.length > 0 && !this.#isLeft) {
      const free = this.#bytesMax - (this.#written - this.#taken);
      if (free === 0) {
        await this.#change.promise;
        continue;
      }
      const at = this.#written % this.#bytesMax;
      const length = Math.min(rest.length, free, this.#bytesMax - at);
      const { bytesWritten } = await this.#file.write(rest, 0, length, at);
      rest = rest.subarray(bytesWritten);
      this.#written += bytesWritten;
      this.#noteChange();
    }
  }

  #noteChange(): void {
    this.#change.resolve();
    this.#change = Promise.withResolvers();
  }
}
