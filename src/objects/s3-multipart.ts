/** A large file in parts: two at a time in memory, each with its checksum, made visible by one last call. */
import { createHash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import {
  AbortMultipartUploadCommand,
  type CompletedPart,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  type S3Client,
  UploadPartCommand,
} from '@aws-sdk/client-s3';

const PARTS_AT_ONCE = 2;
/** Giving an upload up must not hold up a process that is told to stop. */
const ABORT_MS_MAX = 3_000;
/** S3 takes 10,000; larger files get larger parts. */
const PARTS_MAX = 9_000n;

export interface MultipartFile {
  readonly Bucket: string;
  readonly Key: string;
  readonly path: string;
  readonly bytes: bigint;
  readonly sha256: string;
  readonly partBytes: number;
  readonly isConditional: boolean;
}

interface Upload {
  readonly Bucket: string;
  readonly Key: string;
  readonly UploadId: string;
}

/** @throws the SDK's error, after the upload was given up */
export async function multipartUpload(
  client: S3Client,
  file: MultipartFile,
  signal: AbortSignal,
): Promise<void> {
  const { Bucket, Key } = file;
  const created = await client.send(
    new CreateMultipartUploadCommand({
      Bucket,
      Key,
      ChecksumAlgorithm: 'SHA256',
      Metadata: { sha256: file.sha256 },
    }),
    { abortSignal: signal },
  );
  const upload = { Bucket, Key, UploadId: created.UploadId ?? '' };
  try {
    const parts = await sendParts(client, upload, file, signal);
    await client.send(
      new CompleteMultipartUploadCommand({
        ...upload,
        MultipartUpload: { Parts: parts },
        ...(file.isConditional ? { IfNoneMatch: '*' } : {}),
      }),
      { abortSignal: signal },
    );
  } catch (error) {
    // Also where the caller has aborted: parts left behind cost money. If this fails too, the sweep finds them.
    const abortSignal = AbortSignal.timeout(ABORT_MS_MAX);
    await client.send(new AbortMultipartUploadCommand(upload), { abortSignal }).catch(() => undefined);
    throw error;
  }
}

async function sendParts(
  client: S3Client,
  upload: Upload,
  file: MultipartFile,
  signal: AbortSignal,
): Promise<CompletedPart[]> {
  await using handle = await open(file.path, 'r');
  const least = Number((file.bytes + PARTS_MAX - 1n) / PARTS_MAX);
  const partBytes = Math.max(file.partBytes, least);
  const count = Math.ceil(Number(file.bytes) / partBytes);
  const parts: CompletedPart[] = [];
  let next = 0;
  async function sendNext(): Promise<void> {
    while (next < count) {
      const index = next;
      next += 1;
      const content = await readPart(handle, index * partBytes, partBytes);
      parts[index] = await sendPart(client, upload, index + 1, content, signal);
    }
  }
  await Promise.all(Array.from({ length: PARTS_AT_ONCE }, sendNext));
  return parts;
}

async function readPart(handle: FileHandle, position: number, partBytes: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(partBytes);
  let filled = 0;
  while (filled < partBytes) {
    const { bytesRead } = await handle.read(buffer, filled, partBytes - filled, position + filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return buffer.subarray(0, filled);
}

async function sendPart(
  client: S3Client,
  upload: Upload,
  partNumber: number,
  content: Buffer,
  signal: AbortSignal,
): Promise<CompletedPart> {
  const checksum = createHash('sha256').update(content).digest('base64');
  const sent = await client.send(
    new UploadPartCommand({
      ...upload,
      PartNumber: partNumber,
      Body: content,
      ContentLength: content.length,
      ChecksumSHA256: checksum,
    }),
    { abortSignal: signal },
  );
  return {
    PartNumber: partNumber,
    ChecksumSHA256: checksum,
    ...(sent.ETag === undefined ? {} : { ETag: sent.ETag }),
  };
}
