/**
 * A large file in parts, by the SDK's own uploader: two parts at a time in memory, each with its SHA-256,
 * made visible by one last call. Part checksums are named in that call only where the store echoed them.
 */
import type { FileHandle } from 'node:fs/promises';
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  type CompleteMultipartUploadCommandOutput,
  ListMultipartUploadsCommand,
  type S3Client,
} from '@aws-sdk/client-s3';
import { Upload } from '@aws-sdk/lib-storage';
import { isMissing } from './errors.ts';
import type { Target } from './reading.ts';

/** One PUT up to here, parts of this size above: it is held in memory while it is sent. */
export const PART_BYTES = 16 * 2 ** 20;
const PARTS_AT_ONCE = 2;
/** S3 takes 10,000; larger files get larger parts. */
const PARTS_MAX = 9_000;
const READ_BYTES = 2 ** 20;
/** Aborting an upload must not delay a process that is told to stop. */
const ABORT_MS_MAX = 3_000;

export interface PartsFile extends Target {
  readonly file: FileHandle;
  readonly bytes: number;
  readonly sha256: string;
  readonly complete: CompleteUpload;
}

/** Sends the last call, which makes the object visible. */
export type CompleteUpload = (
  command: CompleteMultipartUploadCommand,
  signal: AbortSignal,
) => Promise<CompleteMultipartUploadCommandOutput>;

/** @throws the SDK's error that came first, after the upload was given up */
export async function uploadInParts(client: S3Client, file: PartsFile, signal: AbortSignal): Promise<void> {
  const { Bucket, Key, bytes, sha256, complete } = file;
  const failing = new AbortController();
  const either = AbortSignal.any([signal, failing.signal]);
  const upload = new Upload({
    client: sendingThrough(client, async (command) => {
      if (command instanceof AbortMultipartUploadCommand) return giveUp(client, command);
      try {
        if (command instanceof CompleteMultipartUploadCommand) return await complete(command, either);
        return await client.send(command, { abortSignal: either });
      } catch (error) {
        // The other lane stops; its error is not the cause.
        failing.abort(error);
        throw error;
      }
    }),
    params: {
      Bucket,
      Key,
      Body: file.file.createReadStream({ autoClose: false, start: 0, highWaterMark: READ_BYTES }),
      ContentLength: bytes,
      ChecksumAlgorithm: 'SHA256',
      Metadata: { sha256 },
      IfNoneMatch: '*',
    },
    queueSize: PARTS_AT_ONCE,
    partSize: Math.max(PART_BYTES, Math.ceil(bytes / PARTS_MAX)),
  });
  try {
    await upload.done();
  } catch (error) {
    signal.throwIfAborted();
    throw failing.signal.aborted ? failing.signal.reason : error;
  }
}

type Send = (command: Parameters<S3Client['send']>[0]) => Promise<unknown>;

/** The uploader can be stopped in no other way: it sends without a signal. */
function sendingThrough(client: S3Client, send: Send): S3Client {
  return new Proxy(client, {
    get: (target, name) => (name === 'send' ? send : (Reflect.get(target, name) as unknown)),
  });
}

/** Also after an abort: parts left behind cost money. The sweep removes what this misses. */
async function giveUp(client: S3Client, command: AbortMultipartUploadCommand): Promise<unknown> {
  const abortSignal = AbortSignal.timeout(ABORT_MS_MAX);
  return client.send(command, { abortSignal }).catch(() => undefined);
}

/** Aborts what was begun before, and never finished. @returns how many uploads */
export async function abortUploads(
  client: S3Client,
  where: { readonly Bucket: string; readonly Prefix: string },
  startedBeforeMs: number,
  signal: AbortSignal,
): Promise<number> {
  let aborted = 0;
  for (let from = {}; ;) {
    const list = new ListMultipartUploadsCommand({ ...where, ...from });
    const page = await client.send(list, { abortSignal: signal });
    for (const { Key, UploadId, Initiated } of page.Uploads ?? []) {
      if (Key === undefined || UploadId === undefined) continue;
      if ((Initiated?.getTime() ?? 0) >= startedBeforeMs) continue;
      const abort = new AbortMultipartUploadCommand({ Bucket: where.Bucket, Key, UploadId });
      try {
        await client.send(abort, { abortSignal: signal });
        aborted += 1;
      } catch (error) {
        // Finished or aborted since it was listed.
        if (!isMissing(error)) throw error;
      }
    }
    const { NextKeyMarker: KeyMarker, NextUploadIdMarker: UploadIdMarker } = page;
    if (page.IsTruncated !== true || KeyMarker === undefined) return aborted;
    from = { KeyMarker, ...(UploadIdMarker === undefined ? {} : { UploadIdMarker }) };
  }
}
