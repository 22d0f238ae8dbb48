/** The bytes of a stored object, whichever way it was compressed. */
import { pipeline, type Readable } from 'node:stream';
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
