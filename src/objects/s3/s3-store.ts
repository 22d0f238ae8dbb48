/**
 * Objects in an S3 bucket. Each is written under a condition, with its checksum, and carries the SHA-256
 * of its bytes as metadata: whether a lost or contradicted write has happened is settled by asking.
 */
import { prefixOf } from '../store-url.ts';
import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { Readable } from 'node:stream';
import {
  CompleteMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  paginateListObjectsV2,
  PutObjectCommand,
  type S3Client,
} from '@aws-sdk/client-s3';
import { PermanentError, RetryableError, UnreachableError } from '../../core/errors.ts';
import type { FileFacts } from '../../core/byte-sums.ts';
import { checkKey, checkPrefix } from '../../ledger/objects/object-keys.ts';
import type { ListedObject, ObjectStore, StoreCapabilities } from '../object-store.ts';
import { openS3Client } from './client.ts';
import { isConditionUnknown, isMissing, isTaken, retryOf, s3Error, statusOf } from './errors.ts';
import { type Range, readObject, type Target } from './reading.ts';
import { tryOutS3 } from './trial.ts';
import { abortUploads, type CompleteUpload, PART_BYTES, uploadInParts } from './upload.ts';
import { Spool } from '../spool.ts';
import { STEP_MAX_MS } from '../trial-steps.ts';

const PATIENCE_MS = 60_000;

export interface StoreOptions {
  /** `s3://bucket/prefix?region=…&endpoint=…`, or for a folder `file:///dir`. */
  readonly url: URL;
  /** Where objects for S3 grow; a file store spools into itself, to stay on one filesystem. */
  readonly spoolDir: string;
  /** AWS_… names, whether from the environment or from `.env`. */
  readonly ambient: Readonly<Record<string, string>>;
  /** How long a call waits for a store that is away or busy; a minute by default. */
  readonly patienceMs?: number | undefined;
}

/** @throws UsageError where the endpoint is no URL */
export function openS3Store({ url, spoolDir, ambient, patienceMs = PATIENCE_MS }: StoreOptions): S3Store {
  const prefix = prefixOf(url);
  return new S3Store(openS3Client(url, ambient, patienceMs), url.host, prefix, new Spool(spoolDir));
}

type Standing = 'nothing' | 'written' | 'present';

class S3Store implements ObjectStore {
  readonly url: string;
  readonly #client: S3Client;
  readonly #bucket: string;
  readonly #prefix: string;
  readonly #spool: Spool;
  #known: StoreCapabilities | undefined;

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

  clearSpool(prefix: string): Promise<{ removed: number }> {
    return this.#spool.clear(prefix);
  }

  async publishFile(key: string, path: string, facts: FileFacts, signal: AbortSignal): Promise<void> {
    await using file = await open(path, 'r');
    const written =
      facts.bytes <= BigInt(PART_BYTES)
        ? await this.#put(key, await file.readFile(), facts, signal)
        : await this.#writeOnce(key, facts, this.#isSure('multipart'), signal, () => {
            const complete: CompleteUpload = (command, either) => this.#complete(key, facts, command, either);
            const upload = { ...this.#target(key), file, bytes: Number(facts.bytes), complete };
            return uploadInParts(this.#client, { ...upload, sha256: facts.sha256 }, signal);
          });
    if (written === 'present') throw this.#conflict(key);
  }

  async publishBytes(key: string, content: Buffer, signal: AbortSignal): Promise<void> {
    if ((await this.putIfAbsent(key, content, signal)) === 'present') throw this.#conflict(key);
  }

  putIfAbsent(key: string, content: Buffer, signal: AbortSignal): Promise<'written' | 'present'> {
    const sha256 = createHash('sha256').update(content).digest('hex');
    return this.#put(key, content, { bytes: BigInt(content.length), sha256 }, signal);
  }

  head(key: string, signal: AbortSignal): Promise<{ bytes: bigint; sha256: string | undefined } | undefined> {
    return this.#guard(`look up ${key}`, async () => {
      try {
        const command = new HeadObjectCommand(this.#target(key));
        const found = await this.#client.send(command, { abortSignal: signal });
        return { bytes: BigInt(found.ContentLength ?? 0), sha256: found.Metadata?.['sha256'] };
      } catch (error) {
        if (isMissing(error)) return undefined;
        throw await this.#explained(key, error, signal);
      }
    });
  }

  read(key: string, signal: AbortSignal, range?: Range): Promise<Readable> {
    return this.#guard(`read ${key}`, async () => {
      try {
        const bytes = await readObject(this.#client, this.#target(key), range, signal);
        return Readable.from(this.#mapErrors(`read ${key}`, bytes), { objectMode: false });
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

  async *list(prefix: string, signal: AbortSignal): AsyncIterable<ListedObject> {
    const asked = { Bucket: this.#bucket, Prefix: this.#prefix + checkPrefix(prefix) };
    const pages = paginateListObjectsV2({ client: this.#client }, asked, { abortSignal: signal });
    for await (const { Contents: found = [], IsTruncated: isCut } of this.#mapErrors(
      `list ${prefix}`,
      pages,
    )) {
      for (const { Key: key, Size: size, LastModified: modified } of found) {
        if (key === undefined) continue;
        const modifiedAt = BigInt(modified?.getTime() ?? 0) * 1000n;
        yield { key: key.slice(this.#prefix.length), bytes: BigInt(size ?? 0), modifiedAt };
      }
      // Some stores send a token with the last page.
      if (isCut !== true) return;
    }
  }

  remove(key: string, signal: AbortSignal): Promise<void> {
    return this.#guard(`remove ${key}`, async () => {
      await this.#client.send(new DeleteObjectCommand(this.#target(key)), { abortSignal: signal });
    });
  }

  async sweep(olderThanMs: number, signal: AbortSignal): Promise<{ removed: number }> {
    const { removed } = await this.#spool.sweep(olderThanMs);
    const where = { Bucket: this.#bucket, Prefix: this.#prefix };
    const aborted = await this.#guard('abort unfinished uploads', () =>
      abortUploads(this.#client, where, Date.now() - olderThanMs, signal),
    );
    return { removed: removed + aborted };
  }

  async capabilities(signal: AbortSignal): Promise<StoreCapabilities> {
    return this.#known ?? this.tryOut(signal);
  }

  async tryOut(signal: AbortSignal, stepMaxMs = STEP_MAX_MS): Promise<StoreCapabilities> {
    const where = { url: this.url, bucket: this.#bucket, prefix: this.#prefix };
    this.#known = await tryOutS3(this.#client, where, signal, stepMaxMs);
    return this.#known;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#client.destroy();
  }

  async *#mapErrors<Item>(what: string, items: AsyncIterable<Item>): AsyncGenerator<Item> {
    try {
      yield* items;
    } catch (error) {
      throw s3Error(what, this.url, error);
    }
  }

  #target(key: string): Target {
    return { Bucket: this.#bucket, Key: this.#prefix + checkKey(key) };
  }

  async #put(
    key: string,
    content: Buffer,
    facts: FileFacts,
    signal: AbortSignal,
  ): Promise<'written' | 'present'> {
    const input = {
      ...this.#target(key),
      Body: content,
      ContentLength: content.length,
      ChecksumSHA256: Buffer.from(facts.sha256, 'hex').toString('base64'),
      Metadata: { sha256: facts.sha256 },
    };
    return this.#writeOnce(key, facts, this.#isSure('put'), signal, () =>
      this.#conditionally(key, facts, signal, this.#known?.put !== 'refused', (condition) =>
        this.#client.send(new PutObjectCommand({ ...input, ...condition }), { abortSignal: signal }),
      ),
    );
  }

  /** Only one writer is told that it wrote. */
  #isSure(how: 'put' | 'multipart'): boolean {
    return this.#known?.hasOneWinner === true && this.#known[how] === 'honoured';
  }

  async #complete(
    key: string,
    facts: FileFacts,
    { input }: CompleteMultipartUploadCommand,
    signal: AbortSignal,
  ): ReturnType<CompleteUpload> {
    const { IfNoneMatch: _, ...plain } = input;
    return this.#conditionally(key, facts, signal, this.#known?.multipart !== 'refused', (condition) =>
      this.#client.send(new CompleteMultipartUploadCommand({ ...plain, ...condition }), {
        abortSignal: signal,
      }),
    );
  }

  /** Sends a write with its condition, and without where the store knows none and nothing lies there. */
  async #conditionally<Output>(
    key: string,
    facts: FileFacts,
    signal: AbortSignal,
    isKnown: boolean,
    send: (condition: { IfNoneMatch?: string }) => Promise<Output>,
  ): Promise<Output> {
    if (!isKnown) return send({});
    try {
      return await send({ IfNoneMatch: '*' });
    } catch (error) {
      if (!isConditionUnknown(error) || (await this.#standing(key, facts, signal)) !== 'nothing') throw error;
      return send({});
    }
  }

  /**
   * Writes if absent. The object found afterwards decides, whatever the answer to the write was.
   * @param isHonoured the store is known to refuse a second writer, so its success needs no check
   */
  async #writeOnce(
    key: string,
    facts: FileFacts,
    isHonoured: boolean,
    signal: AbortSignal,
    write: () => Promise<unknown>,
  ): Promise<'written' | 'present'> {
    const before = await this.#standing(key, facts, signal);
    if (before !== 'nothing') return before;
    let failure: Error | undefined;
    try {
      await write();
      if (isHonoured) return 'written';
    } catch (error) {
      signal.throwIfAborted();
      failure = s3Error(`publish ${key}`, this.url, error);
      const isAnswered = isTaken(error) || isConditionUnknown(error) || retryOf(error) !== 'never';
      // A refusal is final, and an unreachable store cannot be asked.
      if (!isAnswered || failure instanceof UnreachableError) throw failure;
    }
    const after = await this.#standing(key, facts, signal).catch((error: unknown) => {
      throw failure ?? error;
    });
    if (after !== 'nothing') return after;
    throw failure ?? this.#cleared(key);
  }

  async #standing(key: string, facts: FileFacts, signal: AbortSignal): Promise<Standing> {
    const found = await this.head(key, signal);
    if (found === undefined) return 'nothing';
    return found.bytes === facts.bytes && found.sha256 === facts.sha256 ? 'written' : 'present';
  }

  /** An answer to HEAD has no body: a GET of one byte asks for the error. */
  async #explained(key: string, error: unknown, signal: AbortSignal): Promise<unknown> {
    if ((statusOf(error) ?? 500) >= 500) return error;
    try {
      const command = new GetObjectCommand({ ...this.#target(key), Range: 'bytes=0-0' });
      const { Body: body } = await this.#client.send(command, { abortSignal: signal });
      if (body instanceof Readable) body.destroy();
      return error;
    } catch (explanation) {
      return isMissing(explanation) || statusOf(explanation) === undefined ? error : explanation;
    }
  }

  #conflict(key: string): PermanentError {
    return new PermanentError(
      `Cannot publish ${key} in ${this.url}: other bytes lie there already; it was changed from outside`,
      { code: 'OBJECT_CONFLICT', meta: { key } },
    );
  }

  #cleared(key: string): RetryableError {
    return new RetryableError(
      `Cannot publish ${key} in ${this.url}: it was cleared away at once; look for what else removes objects there`,
      { code: 'OBJECT_CLEARED', meta: { key } },
    );
  }

  async #guard<Result>(what: string, work: () => Promise<Result>): Promise<Result> {
    try {
      return await work();
    } catch (error) {
      throw s3Error(what, this.url, error);
    }
  }
}
