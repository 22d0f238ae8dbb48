/**
 * Objects in an S3 bucket. Each is written under a condition, with its checksum, and carries the SHA-256
 * of its bytes as metadata: whether a lost or contradicted write has happened is settled by asking.
 */
import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { Readable } from 'node:stream';
import {
  AbortMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
  type S3ClientConfig,
} from '@aws-sdk/client-s3';
import { PermanentError } from '../core/errors.ts';
import type { Micros } from '../core/time.ts';
import { checkKey, checkPrefix } from '../ledger/object-keys.ts';
import type { ObjectStore } from './object-store.ts';
import { isConditionUnknown, isMissing, isTaken, s3Error } from './s3-errors.ts';
import { multipartUpload } from './s3-multipart.ts';
import { Spool } from './spool.ts';

/** One PUT up to here, parts of this size above: it is held in memory while it is sent. */
export const PART_BYTES = 16 * 2 ** 20;
const ATTEMPTS_MAX = 5;
const CONNECT_TIMEOUT_MS = 10_000;
const SOCKET_TIMEOUT_MS = 60_000;

export interface S3StoreOptions {
  readonly url: URL;
  readonly spoolDir: string;
  readonly ambient: Readonly<Record<string, string>>;
}

export function openS3Store({ url, spoolDir, ambient }: S3StoreOptions): S3Store {
  const endpoint =
    url.searchParams.get('endpoint') ?? ambient['AWS_ENDPOINT_URL_S3'] ?? ambient['AWS_ENDPOINT_URL'];
  const region = url.searchParams.get('region') ?? ambient['AWS_REGION'] ?? ambient['AWS_DEFAULT_REGION'];
  const config: S3ClientConfig = {
    ...(region === undefined ? {} : { region }),
    // Stores of one's own seldom have a host name for each bucket.
    ...(endpoint === undefined ? {} : { endpoint, forcePathStyle: true }),
    ...credentialsOf(ambient),
    maxAttempts: ATTEMPTS_MAX,
    // We send and keep SHA-256 ourselves; the SDK's own default breaks multipart on some stores.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    requestHandler: { connectionTimeout: CONNECT_TIMEOUT_MS, socketTimeout: SOCKET_TIMEOUT_MS },
  };
  const prefix = url.pathname.replaceAll(/^\/+|\/+$/g, '');
  return new S3Store(new S3Client(config), url.host, prefix, new Spool(spoolDir));
}

/** What `.env` gave is not in the process's environment; all else is the SDK's own chain. */
function credentialsOf(ambient: S3StoreOptions['ambient']): Pick<S3ClientConfig, 'credentials' | 'profile'> {
  const [accessKeyId, secretAccessKey] = [ambient['AWS_ACCESS_KEY_ID'], ambient['AWS_SECRET_ACCESS_KEY']];
  const sessionToken = ambient['AWS_SESSION_TOKEN'];
  if (accessKeyId !== undefined && secretAccessKey !== undefined) {
    return {
      credentials: { accessKeyId, secretAccessKey, ...(sessionToken === undefined ? {} : { sessionToken }) },
    };
  }
  const profile = ambient['AWS_PROFILE'];
  return profile === undefined ? {} : { profile };
}

class S3Store implements ObjectStore {
  readonly url: string;
  readonly #client: S3Client;
  readonly #bucket: string;
  readonly #prefix: string;
  readonly #spool: Spool;

  constructor(client: S3Client, bucket: string, prefix: string, spool: Spool) {
    this.#client = client;
    this.#bucket = bucket;
    this.#prefix = prefix === '' ? '' : `${prefix}/`;
    this.#spool = spool;
    this.url = `s3://${bucket}/${prefix}`;
  }

  spoolPath(name: string): Promise<string> {
    return this.#spool.path(name);
  }

  clearSpool(prefix: string, keep: ReadonlySet<string>): Promise<{ removed: number }> {
    return this.#spool.clear(prefix, keep);
  }

  async publishFile(
    key: string,
    path: string,
    facts: { bytes: bigint; sha256: string },
    signal: AbortSignal,
  ): Promise<void> {
    if (facts.bytes <= BigInt(PART_BYTES)) {
      await using file = await open(path, 'r');
      await this.#put(key, await file.readFile(), facts.sha256, signal);
      return;
    }
    await this.#conditionally(key, facts, signal, (isConditional) =>
      multipartUpload(
        this.#client,
        { ...this.#target(key), path, ...facts, partBytes: PART_BYTES, isConditional },
        signal,
      ),
    );
  }

  async publishBytes(key: string, content: Buffer, signal: AbortSignal): Promise<void> {
    await this.#put(key, content, createHash('sha256').update(content).digest('hex'), signal);
  }

  head(key: string, signal: AbortSignal): Promise<{ bytes: bigint; sha256: string | undefined } | undefined> {
    return this.#guard(`look up ${key}`, async () => {
      try {
        const command = new HeadObjectCommand(this.#target(key));
        const found = await this.#client.send(command, { abortSignal: signal });
        return { bytes: BigInt(found.ContentLength ?? 0), sha256: found.Metadata?.['sha256'] };
      } catch (error) {
        if (isMissing(error)) return undefined;
        throw error;
      }
    });
  }

  read(key: string, signal: AbortSignal, range?: { start: bigint; end: bigint }): Promise<Readable> {
    return this.#guard(`read ${key}`, async () => {
      const Range = range === undefined ? {} : { Range: `bytes=${range.start}-${range.end - 1n}` };
      try {
        const command = new GetObjectCommand({ ...this.#target(key), ...Range });
        const { Body: body } = await this.#client.send(command, { abortSignal: signal });
        if (!(body instanceof Readable)) throw new TypeError('no body came with the object');
        return Readable.from(this.#untilBroken(key, body), { objectMode: false });
      } catch (error) {
        if (!isMissing(error)) throw error;
        throw new PermanentError(`Cannot read the object ${key}: it is not in ${this.url}`, {
          code: 'OBJECT_MISSING',
          meta: { key },
          cause: error,
        });
      }
    });
  }

  async *list(
    prefix: string,
    signal: AbortSignal,
  ): AsyncIterable<{ key: string; bytes: bigint; modifiedAt: Micros }> {
    const Prefix = this.#prefix + checkPrefix(prefix);
    for (let token: string | undefined; ;) {
      const command = new ListObjectsV2Command({
        Bucket: this.#bucket,
        Prefix,
        ...(token === undefined ? {} : { ContinuationToken: token }),
      });
      const page = await this.#guard(`list ${prefix}`, () =>
        this.#client.send(command, { abortSignal: signal }),
      );
      for (const { Key: key, Size: size, LastModified: modified } of page.Contents ?? []) {
        if (key === undefined) continue;
        const modifiedAt = BigInt(modified?.getTime() ?? 0) * 1000n;
        yield { key: key.slice(this.#prefix.length), bytes: BigInt(size ?? 0), modifiedAt };
      }
      token = page.NextContinuationToken;
      if (page.IsTruncated !== true || token === undefined) return;
    }
  }

  remove(key: string, signal: AbortSignal): Promise<void> {
    return this.#guard(`remove ${key}`, async () => {
      await this.#client.send(new DeleteObjectCommand(this.#target(key)), { abortSignal: signal });
    });
  }

  async sweep(olderThanMs: number, signal: AbortSignal): Promise<{ removed: number }> {
    const { removed } = await this.#spool.sweep(olderThanMs);
    return { removed: removed + (await this.#abortUploads(Date.now() - olderThanMs, signal)) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#client.destroy();
  }

  /** What breaks on the way may be tried again, like the call itself. */
  async *#untilBroken(key: string, body: Readable): AsyncGenerator<Buffer> {
    try {
      yield* body as AsyncIterable<Buffer>;
    } catch (error) {
      throw s3Error(`read ${key}`, this.url, error);
    }
  }

  #target(key: string): { Bucket: string; Key: string } {
    return { Bucket: this.#bucket, Key: this.#prefix + checkKey(key) };
  }

  async #put(key: string, content: Buffer, sha256: string, signal: AbortSignal): Promise<void> {
    const facts = { bytes: BigInt(content.length), sha256 };
    const target = this.#target(key);
    await this.#conditionally(key, facts, signal, async (isConditional) => {
      const command = new PutObjectCommand({
        ...target,
        Body: content,
        ContentLength: content.length,
        ChecksumSHA256: Buffer.from(sha256, 'hex').toString('base64'),
        Metadata: { sha256 },
        ...(isConditional ? { IfNoneMatch: '*' } : {}),
      });
      await this.#client.send(command, { abortSignal: signal });
    });
  }

  /** Writes where nothing lies yet. Whatever the answer, what lies there afterwards decides. */
  async #conditionally(
    key: string,
    facts: { bytes: bigint; sha256: string },
    signal: AbortSignal,
    write: (isConditional: boolean) => Promise<void>,
  ): Promise<void> {
    try {
      await write(true);
    } catch (error) {
      signal.throwIfAborted();
      const found = await this.head(key, signal);
      if (found?.bytes === facts.bytes && found.sha256 === facts.sha256) return;
      if (found !== undefined && (isTaken(error) || isConditionUnknown(error)))
        throw this.#conflict(key, error);
      if (found === undefined && isConditionUnknown(error)) {
        // Without conditions a race can only write the same bytes twice: keys name their content.
        await this.#guard(`publish ${key}`, () => write(false));
        return;
      }
      throw s3Error(`publish ${key}`, this.url, error);
    }
  }

  #conflict(key: string, cause: unknown): PermanentError {
    return new PermanentError(
      `Cannot publish ${key} in ${this.url}: other bytes lie there already; it was changed from outside`,
      { code: 'OBJECT_CONFLICT', meta: { key }, cause },
    );
  }

  async #abortUploads(startedBeforeMs: number, signal: AbortSignal): Promise<number> {
    let aborted = 0;
    const command = new ListMultipartUploadsCommand({ Bucket: this.#bucket, Prefix: this.#prefix });
    const { Uploads: uploads } = await this.#guard('list unfinished uploads', () =>
      this.#client.send(command, { abortSignal: signal }),
    );
    // One page: the next sweep finds the rest.
    for (const { Key, UploadId, Initiated } of uploads ?? []) {
      if (Key === undefined || UploadId === undefined) continue;
      if ((Initiated?.getTime() ?? 0) >= startedBeforeMs) continue;
      const abort = new AbortMultipartUploadCommand({ Bucket: this.#bucket, Key, UploadId });
      await this.#guard(`abort an unfinished upload of ${Key}`, async () => {
        try {
          await this.#client.send(abort, { abortSignal: signal });
          aborted += 1;
        } catch (error) {
          // Finished, or given up, since it was listed.
          if (!isMissing(error)) throw error;
        }
      });
    }
    return aborted;
  }

  async #guard<Result>(what: string, work: () => Promise<Result>): Promise<Result> {
    try {
      return await work();
    } catch (error) {
      throw s3Error(what, this.url, error);
    }
  }
}
