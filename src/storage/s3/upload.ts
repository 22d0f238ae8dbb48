/**
 * A large object in parts: two at a time in memory, each with its SHA-256, made visible by one last call. Part
 * checksums are named in that call only where the store echoed them.
 */
import type { CompletedPart, S3 } from '@aws-sdk/client-s3';
import type { FileFacts } from '../../files/byte-counter.ts';
import { isMissing } from './errors.ts';

/** One PUT up to here, parts of this size above: it is held in memory while it is sent. */
export const PART_BYTES = 16 * 2 ** 20;
/** S3 takes 10,000; larger files get larger parts. */
const PARTS_MAX = 9_000;
const CHECKSUM = { ChecksumAlgorithm: 'SHA256' } as const;
/** Aborting an upload must not delay a process that is told to stop. */
const ABORT_MS_MAX = 3_000;

export type Where = Readonly<Record<'Bucket' | 'Prefix', string>>;
export type Target = Readonly<Record<'Bucket' | 'Key', string>>;

type PartsSource = FileFacts & {
  readonly readPart: (start: number, length: number) => Promise<Buffer>;
};

/** Sends a write with its condition, or without. */
export type Send = (condition: { readonly IfNoneMatch?: string }) => Promise<unknown>;

/**
 * @param conditionally sends the last call, which makes the object visible
 * @throws the SDK's error that came first, after the upload was given up
 */
export async function uploadInParts(
  client: S3,
  target: Target,
  { bytes: exactBytes, sha256, readPart }: PartsSource,
  conditionally: (send: Send) => Promise<unknown>,
  signal: AbortSignal,
): Promise<void> {
  const bytes = Number(exactBytes);
  const failing = new AbortController();
  const either = { abortSignal: AbortSignal.any([signal, failing.signal]) };
  const create = { ...target, ...CHECKSUM, Metadata: { sha256 } };
  const { UploadId } = await client.createMultipartUpload(create, either);
  const upload = { ...target, UploadId };
  const partBytes = Math.max(PART_BYTES, Math.ceil(bytes / PARTS_MAX));
  const Parts: CompletedPart[] = [];
  const starts = Array.from(
    { length: Math.ceil(bytes / partBytes) },
    (_, nth) => nth * partBytes,
  ).values();
  const sendParts = async (): Promise<void> => {
    for (const start of starts) {
      const PartNumber = start / partBytes + 1;
      const Body = await readPart(start, Math.min(partBytes, bytes - start));
      const part = { ...upload, ...CHECKSUM, PartNumber, Body };
      const { ETag, ChecksumSHA256 } = await client.uploadPart(part, either);
      Parts[PartNumber - 1] = { PartNumber, ETag, ChecksumSHA256 };
    }
  };
  try {
    await Promise.all([sendParts(), sendParts()]);
    const last = { ...upload, MultipartUpload: { Parts } };
    await conditionally((condition) =>
      client.completeMultipartUpload({ ...last, ...condition }, either),
    );
  } catch (error) {
    // The other parts stop. Also after an abort: what is left behind costs money; the sweep removes what this misses.
    failing.abort(error);
    const limit = { abortSignal: AbortSignal.timeout(ABORT_MS_MAX) };
    await client.abortMultipartUpload(upload, limit).catch(() => undefined);
    throw error;
  }
}

/** Aborts what was begun before, and never finished. @returns how many uploads */
export async function abortUploads(
  client: S3,
  where: Where,
  startedBeforeMs: number,
  abortSignal: AbortSignal,
): Promise<number> {
  let aborted = 0;
  for (let from = {}; ;) {
    const page = await client.listMultipartUploads(
      { ...where, ...from },
      { abortSignal },
    );
    for (const { Key, UploadId, Initiated } of page.Uploads ?? []) {
      if ((Initiated?.getTime() ?? 0) >= startedBeforeMs) continue;
      try {
        await client.abortMultipartUpload(
          { Bucket: where.Bucket, Key, UploadId },
          { abortSignal },
        );
        aborted += 1;
      } catch (error) {
        // Finished or aborted since it was listed.
        if (!isMissing(error)) throw error;
      }
    }
    const { NextKeyMarker: KeyMarker, NextUploadIdMarker: UploadIdMarker } = page;
    if (page.IsTruncated !== true || KeyMarker === undefined) return aborted;
    from = { KeyMarker, UploadIdMarker };
  }
}
