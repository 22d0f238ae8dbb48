/** The bytes of a stored object: read whichever way it was compressed, and summed on their way. */
import { createHash } from 'node:crypto';
import { pipeline, type Readable, Transform } from 'node:stream';
import { createGunzip, createZstdDecompress } from 'node:zlib';
import { errorCode } from '../../core/errors.ts';
import type { Compression } from './object-keys.ts';

const PIECE_BYTES = 256 * 2 ** 10;

/** Destroying the stream that is returned ends the stored one too; errors of either come out of it. */
export function plainStream(stored: Readable, compression: Compression): Readable {
  if (compression === 'none') return stored;
  const plain =
    compression === 'zstd'
      ? createZstdDecompress({ chunkSize: PIECE_BYTES })
      : createGunzip({ chunkSize: PIECE_BYTES });
  // The callback does nothing: pipeline destroys `plain` with the error, and its reader meets it there.
  return pipeline(stored, plain, () => undefined);
}

/** An archive that does not unpack, as zstd and zlib say it. */
export function isArchiveDamage(error: unknown): boolean {
  return /^(?:ZSTD_|Z_)/.test(errorCode(error));
}

/** How many bytes there are, and their SHA-256. */
export class ByteSums {
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
}
