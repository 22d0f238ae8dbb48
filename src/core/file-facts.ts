/** Size and SHA-256 of what streams, with flat memory. */
import { createHash } from 'node:crypto';

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
