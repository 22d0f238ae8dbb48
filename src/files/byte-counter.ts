/** Counts and hashes bytes while they stream. */
import { createHash } from 'node:crypto';
import { Transform } from 'node:stream';
import { errorCode } from '../errors/errors.ts';

/** The size and checksum of some content. */
export interface FileFacts {
  readonly bytes: bigint;
  /** The SHA-256 of the content, as 64 hex digits. */
  readonly sha256: string;
}

export class ByteCounter {
  bytes = 0n;
  readonly #hash = createHash('sha256');

  add(chunk: Buffer): void {
    this.bytes += BigInt(chunk.length);
    this.#hash.update(chunk);
  }

  /** Returns a pass-through stream that counts everything written to it. */
  through(): Transform {
    return new Transform({
      transform: (chunk: Buffer, _encoding, done) => {
        this.add(chunk);
        done(null, chunk);
      },
    });
  }

  /** Returns the checksum as hex digits. Call this only once, after the last `add`. */
  sha256(): string {
    return this.#hash.digest('hex');
  }

  /** Returns the size and the checksum. Call this only once, after the last `add`. */
  facts(): FileFacts {
    return { bytes: this.bytes, sha256: this.sha256() };
  }
}

export function contentFacts(content: Buffer): FileFacts {
  return {
    bytes: BigInt(content.length),
    sha256: createHash('sha256').update(content).digest('hex'),
  };
}

/** Reads a stream to its end, and returns its size and checksum. */
export async function measureStream(
  chunks: AsyncIterable<Buffer>,
): Promise<FileFacts> {
  const sums = new ByteCounter();
  for await (const chunk of chunks) sums.add(chunk);
  return sums.facts();
}

/**
 * An error handler for `.catch`: returns undefined if the file or folder does not exist,
 * and rethrows every other error.
 */
export function undefinedIfMissing(error: unknown): undefined {
  if (errorCode(error) === 'ENOENT') return undefined;
  throw error;
}
