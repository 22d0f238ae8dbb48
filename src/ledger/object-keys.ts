/**
 * The keys of objects, made and checked in one place, so that none can leave its store;
 * and what a key says of its bytes.
 */
import { createHash } from 'node:crypto';
import { pipeline, type Readable } from 'node:stream';
import { createGunzip, createZstdDecompress } from 'node:zlib';
import { errorCode, PermanentError } from '../errors/errors.ts';
import { isHexId } from './ids.ts';
import { formatCompact } from '../time/time.ts';
import type { Manifest } from './manifest.ts';

export type Compression = Manifest['compression'];

const SUFFIX: Readonly<Record<Compression, string>> = {
  zstd: '.zst',
  gzip: '.gz',
  none: '',
};
const PART = /^[A-Za-z0-9_=][A-Za-z0-9_=.,+-]*$/;
/** S3's limit. */
const KEY_BYTES_MAX = 1024;
const SHA_CHARACTERS = 12;

/** @throws PermanentError `OBJECT_KEY_INVALID` */
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

/** A prefix to list by: like a key, but it may end anywhere, and may be empty. */
export function checkPrefix(prefix: string): string {
  checkKey(`${prefix}0`);
  return prefix;
}

/** File systems end at 255 bytes a name. */
const NAME_CHARACTERS_MAX = 200;

/**
 * A party's id as a part of a key or a file name, one to one: 64 hex digits as they are;
 * of other ids, bytes beyond `A-Za-z0-9_.-` as `=XX`, and what is too long by its
 * SHA-256.
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

/** What the keys of all objects of a party begin with. */
export function partyPrefix(partyId: string): string {
  return `ledger/party=${partyName(partyId)}/`;
}

/**
 * `ledger/party=…/asset=…/<from>_<to>.<sha>.csv[.zst|.gz]`, of whole seconds; `sha256` is
 * of the plain CSV.
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

/** Whether a key is one that `segmentKey` makes. */
export function isSegmentKey(key: string): boolean {
  return SEGMENT_KEY.test(key);
}

const MANIFEST_SUFFIX = '.manifest.json';

export function manifestKey(objectKey: string): string {
  return checkKey(`${objectKey}${MANIFEST_SUFFIX}`);
}

/** The object that a manifest lies beside. */
export function objectKeyOf(keyOfManifest: string): string {
  return keyOfManifest.slice(0, -MANIFEST_SUFFIX.length);
}

export function isManifestKey(key: string): boolean {
  return key.endsWith(MANIFEST_SUFFIX);
}

/** How an object is compressed, by its key. */
export function compressionOf(objectKey: string): Compression {
  if (objectKey.endsWith(SUFFIX.zstd)) return 'zstd';
  return objectKey.endsWith(SUFFIX.gzip) ? 'gzip' : 'none';
}

const PIECE_BYTES = 256 * 2 ** 10;

/**
 * The bytes of a stored object, whichever way it was compressed. Destroying the stream
 * that is returned ends the stored one too; errors of either come out of it.
 */
export function plainStream(
  stored: Readable,
  compression: Compression,
): Readable {
  if (compression === 'none') return stored;
  const plain =
    compression === 'zstd'
      ? createZstdDecompress({ chunkSize: PIECE_BYTES })
      : createGunzip({ chunkSize: PIECE_BYTES });
  // The callback does nothing: pipeline destroys `plain` with the error, and its reader
  // meets it there.
  return pipeline(stored, plain, () => undefined);
}

/** An archive that does not unpack, as zstd and zlib say it. */
export function isArchiveDamage(error: unknown): boolean {
  return /^(?:ZSTD_|Z_)/.test(errorCode(error));
}
