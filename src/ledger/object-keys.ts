/**
 * Builds and validates the keys of all objects, so that no key can point outside its
 * store, and determines from a key how the object is compressed.
 */
import { createHash } from 'node:crypto';
import { pipeline, type Readable } from 'node:stream';
import { createGunzip, createZstdDecompress } from 'node:zlib';
import { errorCode, PermanentError } from '../errors/errors.ts';
import { isHexId } from './ids.ts';
import { formatCompact } from '../time/time.ts';
import type { Manifest } from './manifest.ts';
import { splitZstdFrames } from './zstd-frames.ts';

export type Compression = Manifest['compression'];

const SUFFIX: Readonly<Record<Compression, string>> = {
  zstd: '.zst',
  gzip: '.gz',
  none: '',
};
const PART = /^[A-Za-z0-9_=][A-Za-z0-9_=.,+-]*$/;
/** Maximum size of an S3 key in bytes. */
const KEY_BYTES_MAX = 1024;
const SHA_CHARACTERS = 12;

/**
 * Checks an object key.
 * @throws PermanentError `OBJECT_KEY_INVALID`
 */
export function checkKey(key: string): string {
  if (
    key.length <= KEY_BYTES_MAX &&
    key.split('/').every((part) => PART.test(part))
  )
    return key;
  throw new PermanentError(
    `Cannot use the object key ${JSON.stringify(key.slice(0, 200))}: its parts ` +
      'must be letters, digits and _ = . , + -',
    { code: 'OBJECT_KEY_INVALID', meta: { key: key.slice(0, KEY_BYTES_MAX) } },
  );
}

/**
 * Checks a prefix for listing. It has the format of a key, but may end anywhere and may
 * be empty.
 */
export function checkPrefix(prefix: string): string {
  checkKey(`${prefix}0`);
  return prefix;
}

/** Maximum number of characters in a name; file systems allow 255 bytes. */
const NAME_CHARACTERS_MAX = 200;

/**
 * Converts a party id to part of a key or a file name; different ids get different
 * names. 64 hex digits are left unchanged. In other ids, bytes other than
 * `A-Za-z0-9_.-` become `=XX`, and an id that is too long is replaced by its SHA-256.
 */
export function partyName(partyId: string): string {
  if (isHexId(partyId)) return partyId;
  const name = [...Buffer.from(partyId)]
    .map((byte) => {
      const character = String.fromCharCode(byte);
      return /[A-Za-z0-9_.-]/.test(character)
        ? character
        : `=${byte.toString(16).toUpperCase().padStart(2, '0')}`;
    })
    .join('');
  return name.length <= NAME_CHARACTERS_MAX
    ? name
    : `=sha256=${createHash('sha256').update(partyId).digest('hex')}`;
}

/** Returns the prefix of the keys of all of a party's objects. */
export function partyPrefix(partyId: string): string {
  return `ledger/party=${partyName(partyId)}/`;
}

/**
 * Builds a segment's key: `ledger/party=…/asset=…/<from>_<to>.<sha>.csv[.zst|.gz]`, with
 * times in whole seconds. `sha256` is the hash of the plain CSV.
 */
export function segmentKey(
  name: Pick<Manifest, 'partyId' | 'from' | 'to' | 'sha256' | 'compression'> &
    Partial<Pick<Manifest, 'assetId'>>,
): string {
  const range = `${formatCompact(name.from)}_${formatCompact(name.to)}`;
  const file = `${range}.${name.sha256.slice(0, SHA_CHARACTERS)}.csv${SUFFIX[name.compression]}`;
  return checkKey(
    `${partyPrefix(name.partyId)}asset=${name.assetId ?? 'all'}/${file}`,
  );
}

const SEGMENT_KEY =
  /^ledger\/party=[A-Za-z0-9_.=-]+\/asset=[A-Za-z0-9]+\/\d{8}T\d{6}Z_\d{8}T\d{6}Z\.[0-9a-f]{12}\.csv(?:\.zst|\.gz)?$/;

/** Whether a key has the format that `segmentKey` builds. */
export function isSegmentKey(key: string): boolean {
  return SEGMENT_KEY.test(key);
}

const MANIFEST_SUFFIX = '.manifest.json';

export function manifestKey(objectKey: string): string {
  return checkKey(`${objectKey}${MANIFEST_SUFFIX}`);
}

/** Returns the key of the object that a manifest describes. */
export function objectKeyOf(keyOfManifest: string): string {
  return keyOfManifest.slice(0, -MANIFEST_SUFFIX.length);
}

export function isManifestKey(key: string): boolean {
  return key.endsWith(MANIFEST_SUFFIX);
}

/** Returns how an object is compressed, according to its key. */
export function compressionOf(objectKey: string): Compression {
  if (objectKey.endsWith(SUFFIX.zstd)) return 'zstd';
  return objectKey.endsWith(SUFFIX.gzip) ? 'gzip' : 'none';
}

const PIECE_BYTES = 256 * 2 ** 10;

/**
 * Decompresses a stored object. Destroying the returned stream also destroys the stored
 * one; errors from either stream are emitted on the returned one.
 */
export function plainStream(
  stored: Readable,
  compression: Compression,
): Readable {
  if (compression === 'none') return stored;
  // The callback is empty because `pipeline` destroys the last stream with the error,
  // so its consumer gets it.
  const noop = (): undefined => undefined;
  return compression === 'zstd'
    ? pipeline(
        stored,
        splitZstdFrames(),
        createZstdDecompress({ chunkSize: PIECE_BYTES }),
        noop,
      )
    : pipeline(stored, createGunzip({ chunkSize: PIECE_BYTES }), noop);
}

/** Whether zstd or zlib reported that an archive is damaged. */
export function isArchiveDamage(error: unknown): boolean {
  return /^(?:ZSTD_|Z_)/.test(errorCode(error));
}
