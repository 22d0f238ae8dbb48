/**
 * Objects in an S3 bucket. Each is written under a condition, with its checksum, and carries the SHA-256
 * of its bytes as metadata: whether a lost or contradicted write has happened is settled by asking.
 */
import { open } from 'node:fs/promises';
import { Readable } from 'node:stream';
import {
  DeleteObjectCommand,
  paginateListObjectsV2,
  PutObjectCommand,
  type S3Client,
} from '@aws-sdk/client-s3';
import { PermanentError, RetryableError, UnreachableError } from '../../core/errors.ts';
import { type FileFacts, factsOf } from '../../core/byte-sums.ts';
import { checkKey, checkPrefix } from '../../ledger/objects/object-keys.ts';
import type { ConditionSupport, ListedObject, ObjectStore, StoreCapabilities } from '../object-store.ts';
import { Spool } from '../spool.ts';
import { prefixOf, storeUrl } from '../store-url.ts';
import { tryOutStore } from '../try-out-store.ts';
import { openS3Client } from './client.ts';
import { isConditionUnknown, isMissing, isTaken, retryOf, s3Error, statusOf } from './errors.ts';
import { type Range, readObject, type Target } from './reading.ts';
import { abortUploads, PART_BYTES, type Send, uploadInParts } from './upload.ts';

const PATIENCE_MS = 60_000;
const IF_ABSENT = { IfNoneMatch: '*' } as const;

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

type Outcome = 'written' | 'present';

export class S3Store implements ObjectStore {
  readonly url: string;
  readonly #client: S3Client;
  readonly #bucket: string;
  readonly #prefix: string;
  readonly #spool: Spool;
  #known: StoreCapabilities | undefined;

  /** @throws UsageError where the endpoint is no URL */
  constructor({ url, spoolDir, ambient, patienceMs = PATIENCE_MS }: StoreOptions) {
    this.url = storeUrl(url);
    this.#client = openS3Client(url, ambient, patienceMs);
    this.#bucket = url.host;
    const prefix = prefixOf(url);
    this.#prefix = prefix === '' ? '' : `${prefix}/`;
    this.#spool = new Spool(spoolDir);
  }

  spoolPath(name: string): Promise<string> {
    return this.#spool.path(name);
  }

  clearSpool(prefix: string): Promise<{ removed: number }> {
    return this.#spool.clear(prefix);
  }

  async publishFile(key: string, path: string, facts: FileFacts, signal: AbortSignal): Promise<void> {
    await using file = await open(path, 'r');
    const readPart = async (start: number, length: number): Promise<Buffer> => {
      const { buffer: part, bytesRead } = await file.read(Buffer.allocUnsafe(length), 0, length, start);
      return part.subarray(0, bytesRead);
    };
    const written =
      facts.bytes <= BigInt(PART_BYTES)
        ? await this.#put(key, await file.readFile(), facts, signal)
        : await this.#writeOnce('multipart', key, facts, signal, (conditionally) =>
            uploadInParts(this.#client, this.#target(key), { ...facts, readPart }, conditionally, signal),
          );
    this.#refuseOther(key, written);
  }

  async publishBytes(key: string, content: Buffer, signal: AbortSignal): Promise<void> {
    this.#refuseOther(key, await this.putIfAbsent(key, content, signal));
  }

  putIfAbsent(key: string, content: Buffer, signal: AbortSignal): Promise<Outcome> {
    return this.#put(key, content, factsOf(content), signal);
  }

  /** By a GET of one byte: an answer to HEAD has no body that could tell an error. */
  head(key: string, signal: AbortSignal): Promise<{ bytes: bigint; sha256: string | undefined } | undefined> {
    return this.#guard(`look up ${key}`, async () => {
      try {
        const range = { start: 0n, end: 1n };
        const { headers, bytes } = await readObject(this.#client, this.#target(key), range, signal);
        while ((await bytes.next()).done !== true);
        const size = BigInt(headers.ContentRange?.split('/').at(-1) ?? 0);
        return { bytes: size, sha256: headers.Metadata?.['sha256'] };
      } catch (error) {
        if (isMissing(error)) return undefined;
        // Not satisfiable: what lies there is empty.
        if (statusOf(error) === 416) return factsOf(Buffer.alloc(0));
        throw error;
      }
    });
  }

  read(key: string, signal: AbortSignal, range?: Range): Promise<Readable> {
    return this.#guard(`read ${key}`, async () => {
      try {
        const { bytes } = await readObject(this.#client, this.#target(key), range, signal);
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
      for (const { Key: key = '', Size: size = 0, LastModified: modified } of found) {
        const modifiedAt = BigInt(modified?.getTime() ?? 0) * 1000n;
        yield { key: key.slice(this.#prefix.length), bytes: BigInt(size), modifiedAt };
      }
      // Some stores send a token with the last page.
      if (isCut !== true) return;
    }
  }

  async remove(key: string, signal: AbortSignal): Promise<void> {
    const command = new DeleteObjectCommand(this.#target(key));
    await this.#guard(`remove ${key}`, () => this.#client.send(command, { abortSignal: signal }));
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

  async tryOut(signal: AbortSignal, stepMaxMs?: number): Promise<StoreCapabilities> {
    const put = (key: string, content: Buffer, either: AbortSignal): Promise<ConditionSupport> =>
      this.#guard('write an object that is there', () =>
        supportOf(this.#sendPut(key, content, factsOf(content), either)(IF_ABSENT)),
      );
    const inParts = (key: string, content: Buffer, either: AbortSignal): Promise<ConditionSupport> => {
      const source = { ...factsOf(content), readPart: async () => content };
      const conditionally = (send: Send): Promise<unknown> => send(IF_ABSENT);
      return this.#guard('send an object in parts', () =>
        supportOf(uploadInParts(this.#client, this.#target(key), source, conditionally, either)),
      );
    };
    this.#known = await tryOutStore(this, { put, inParts }, signal, stepMaxMs);
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

  #sendPut(key: string, content: Buffer, { sha256 }: FileFacts, signal: AbortSignal): Send {
    const input = {
      ...this.#target(key),
      Body: content,
      ContentLength: content.length,
      ChecksumSHA256: Buffer.from(sha256, 'hex').toString('base64'),
      Metadata: { sha256 },
    };
    return (condition) =>
      this.#client.send(new PutObjectCommand({ ...input, ...condition }), { abortSignal: signal });
  }

  #put(key: string, content: Buffer, facts: FileFacts, signal: AbortSignal): Promise<Outcome> {
    const send = this.#sendPut(key, content, facts, signal);
    return this.#writeOnce('put', key, facts, signal, (conditionally) => conditionally(send));
  }

  /**
   * Writes if absent. The object found afterwards decides, whatever the answer to the write was.
   * @param write gets what sends a call under the condition, and without where the store knows none and nothing lies there
   */
  async #writeOnce(
    how: 'put' | 'multipart',
    key: string,
    facts: FileFacts,
    signal: AbortSignal,
    write: (conditionally: (send: Send) => Promise<unknown>) => Promise<unknown>,
  ): Promise<Outcome> {
    const before = await this.#standing(key, facts, signal);
    if (before !== undefined) return before;
    let failure: Error | undefined;
    try {
      await write((send) =>
        send(IF_ABSENT).catch(async (error: unknown) => {
          if (!isConditionUnknown(error) || (await this.#standing(key, facts, signal))) throw error;
          return send({});
        }),
      );
      // Only one writer is told that it wrote.
      if (this.#known?.hasOneWinner === true && this.#known[how] === 'honoured') return 'written';
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
    if (after !== undefined) return after;
    throw (
      failure ??
      new RetryableError(
        `Cannot publish ${key} in ${this.url}: it was cleared away at once; look for what else removes objects there`,
        { code: 'OBJECT_CLEARED', meta: { key } },
      )
    );
  }

  /** Whether these bytes lie under the key; undefined where nothing does. */
  async #standing(key: string, facts: FileFacts, signal: AbortSignal): Promise<Outcome | undefined> {
    const found = await this.head(key, signal);
    if (found === undefined) return undefined;
    return found.bytes === facts.bytes && found.sha256 === facts.sha256 ? 'written' : 'present';
  }

  #refuseOther(key: string, outcome: Outcome): void {
    if (outcome === 'written') return;
    throw new PermanentError(
      `Cannot publish ${key} in ${this.url}: other bytes lie there already; it was changed from outside`,
      { code: 'OBJECT_CONFLICT', meta: { key } },
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

/** Of a write where something lies already. */
async function supportOf(write: Promise<unknown>): Promise<ConditionSupport> {
  try {
    await write;
    return 'ignored';
  } catch (error) {
    if (isTaken(error)) return 'honoured';
    if (isConditionUnknown(error)) return 'refused';
    throw error;
  }
}
