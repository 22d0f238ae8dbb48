/** Size and SHA-256 of bytes, summed while they stream; and files that are not there. */
import { createHash } from 'node:crypto';
import { Transform } from 'node:stream';
import { errorCode } from '../errors/errors.ts';

export interface FileFacts {
  readonly bytes: bigint;
  readonly sha256: string;
}

export class ByteCounter {
  bytes = 0n;
  readonly #hash = createHash('sha256');

  add(chunk: Buffer): void {
    this.bytes += BigInt(chunk.length);
    this.#hash.update(chunk);
  }

  /** A stream that adds what passes through it. */
  through(): Transform {
    return new Transform({
      transform: (chunk: Buffer, _encoding, done) => {
        this.add(chunk);
        done(null, chunk);
      },
    });
  }

  /** Hex; once, at the end. */
  sha256(): string {
    return this.#hash.digest('hex');
  }

  /** Once, at the end. */
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

/** Reads everything. */
export async function measureStream(chunks: AsyncIterable<Buffer>): Promise<FileFacts> {
  const sums = new ByteCounter();
  for await (const chunk of chunks) sums.add(chunk);
  return sums.facts();
}

/** For `.catch`: undefined where the file or folder is not there. */
export function undefinedIfMissing(error: unknown): undefined {
  if (errorCode(error) === 'ENOENT') return undefined;
  throw error;
}
