/**
 * Sends a large object in parts. Two parts at a time are in memory, each is sent with its
 * SHA-256, and a final call makes the object visible. That call includes the parts'
 * checksums only if the store returned them.
 */
import type {
  CompletedPart,
  S3,
  ServerSideEncryption,
  StorageClass,
} from '@aws-sdk/client-s3';
import type { FileFacts } from '../../files/byte-counter.ts';
import { isMissing } from './errors.ts';

/**
 * Objects up to this size are sent in one PUT, from memory; larger ones are sent in
 * parts of this size.
 */
export const PART_BYTES = 16 * 2 ** 20;
/**
 * Maximum number of parts per object; S3 accepts 10,000. Larger files get larger parts.
 */
const PARTS_MAX = 9_000;
const CHECKSUM = { ChecksumAlgorithm: 'SHA256' } as const;
/**
 * How long aborting an upload may take. It is short because it must not delay a process
 * that is stopping.
 */
const ABORT_MS_MAX = 3_000;

/** A bucket and the prefix of its keys, which is empty or ends with a slash. */
export interface Where {
  readonly Bucket: string;
  readonly Prefix: string;
}

/** An object in a bucket. */
export interface Target {
  readonly Bucket: string;
  readonly Key: string;
}

/**
 * How the store keeps new objects: encryption and storage class. If an option is absent,
 * the store's default applies.
 */
export interface Keeping {
  readonly ServerSideEncryption?: ServerSideEncryption;
  readonly SSEKMSKeyId?: string;
  readonly StorageClass?: StorageClass;
}

/** Reads `sse=`, `kms-key=` and `storage-class=` from OBJECT_STORE_URL. */
export function readKeeping({ searchParams }: URL): Keeping {
  const sse = searchParams.get('sse');
  const key = searchParams.get('kms-key');
  const storageClass = searchParams.get('storage-class');
  return {
    ...(sse === null
      ? {}
      : { ServerSideEncryption: sse as ServerSideEncryption }),
    ...(key === null ? {} : { SSEKMSKeyId: key }),
    ...(storageClass === null
      ? {}
      : { StorageClass: storageClass as StorageClass }),
  };
}

/** Content that can be read in parts. */
export interface PartsSource extends FileFacts {
  readPart(start: number, length: number): Promise<Buffer>;
}

/** The condition of a write; if empty, the write is unconditional. */
export interface WriteCondition {
  readonly IfNoneMatch?: string;
}

/** Sends a write with a condition. */
export type Send = (condition: WriteCondition) => Promise<unknown>;

/** Decides which condition is sent with the call that makes an object visible. */
export type Conditionally = (send: Send) => Promise<unknown>;

/**
 * Uploads an object in parts.
 * @param conditionally sends the final call, which makes the object visible
 * @throws the SDK's first error, after aborting the upload
 */
export async function uploadInParts(
  client: S3,
  target: Target,
  source: PartsSource,
  keeping: Keeping,
  conditionally: Conditionally,
  signal: AbortSignal,
): Promise<void> {
  const bytes = Number(source.bytes);
  const partBytes = Math.max(PART_BYTES, Math.ceil(bytes / PARTS_MAX));
  const count = Math.ceil(bytes / partBytes);
  const failing = new AbortController();
  const either = { abortSignal: AbortSignal.any([signal, failing.signal]) };

  const create = {
    ...target,
    ...keeping,
    ...CHECKSUM,
    Metadata: { sha256: source.sha256 },
  };
  const { UploadId } = await client.createMultipartUpload(create, either);
  const upload = { ...target, UploadId };
  const parts: CompletedPart[] = [];
  // Both senders take their next part from one iterator.
  const starts = Array.from(
    { length: count },
    (_, nth) => nth * partBytes,
  ).values();

  async function sendParts(): Promise<void> {
    for (const start of starts) {
      const PartNumber = start / partBytes + 1;
      const Body = await source.readPart(
        start,
        Math.min(partBytes, bytes - start),
      );
      const part = { ...upload, ...CHECKSUM, PartNumber, Body };
      const { ETag, ChecksumSHA256 } = await client.uploadPart(part, either);
      parts[PartNumber - 1] = { PartNumber, ETag, ChecksumSHA256 };
    }
  }

  try {
    await Promise.all([sendParts(), sendParts()]);
    const last = { ...upload, MultipartUpload: { Parts: parts } };
    await conditionally((condition) =>
      client.completeMultipartUpload({ ...last, ...condition }, either),
    );
  } catch (error) {
    failing.abort(error);
    // Parts already sent cost money. If the abort fails, `abortUploads` removes them
    // later.
    const limit = { abortSignal: AbortSignal.timeout(ABORT_MS_MAX) };
    await client.abortMultipartUpload(upload, limit).catch(() => undefined);
    throw error;
  }
}

/**
 * Aborts uploads that began before an instant and were never finished.
 * @returns the number of aborted uploads
 */
export async function abortUploads(
  client: S3,
  where: Where,
  startedBeforeMs: number,
  abortSignal: AbortSignal,
): Promise<number> {
  let aborted = 0;
  let marker = {};
  for (;;) {
    const listing = { ...where, ...marker };
    const page = await client.listMultipartUploads(listing, { abortSignal });
    for (const { Key, UploadId, Initiated } of page.Uploads ?? []) {
      const startedMs = Initiated?.getTime() ?? 0;
      if (startedMs >= startedBeforeMs) continue;
      const upload = { Bucket: where.Bucket, Key, UploadId };
      try {
        await client.abortMultipartUpload(upload, { abortSignal });
        aborted += 1;
      } catch (error) {
        // The upload was finished or aborted after it was listed.
        if (!isMissing(error)) throw error;
      }
    }
    const { NextKeyMarker: KeyMarker, NextUploadIdMarker: UploadIdMarker } =
      page;
    if (page.IsTruncated !== true || KeyMarker === undefined) return aborted;
    marker = { KeyMarker, UploadIdMarker };
  }
}
