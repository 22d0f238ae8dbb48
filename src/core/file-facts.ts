/** Files: size and SHA-256 of what streams, with flat memory; and what is not there. */
import { createHash } from 'node:crypto';
import { errorCode } from './errors.ts';

export interface FileFacts {
  readonly bytes: bigint;
  readonly sha256: string;
}

/** Passes chunks on, and knows what has passed. */
export class Measured {
  readonly #hash = createHash('sha256');
  #bytes = 0n;

  async *pass(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of chunks) {
      this.#hash.update(chunk);
      this.#bytes += BigInt(chunk.length);
      yield chunk;
    }
  }

  /** To be asked once, at the end. */
  facts(): FileFacts {
    return { bytes: this.#bytes, sha256: this.#hash.digest('hex') };
  }
}

/** Reads everything. */
export async function measure(chunks: AsyncIterable<Buffer>): Promise<FileFacts> {
  const measured = new Measured();
  for await (const _ of measured.pass(chunks));
  return measured.facts();
}

/** For `.catch`: undefined where the file or folder is not there. */
export function absent(error: unknown): undefined {
  if (errorCode(error) === 'ENOENT') return undefined;
  throw error;
}
