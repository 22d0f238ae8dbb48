/** Objects in a bucket of S3 or of an S3-compatible server. */
import { open } from 'node:fs/promises';
import { Readable } from 'node:stream';
import type { S3 } from '@aws-sdk/client-s3';
import { RetryableError } from '../../errors/errors.ts';
import { contentFacts, type FileFacts } from '../../files/byte-counter.ts';
import type { SecretState } from '../../network/rotating-secret.ts';
import { fileError } from '../file-store.ts';
import { guardStore, type StoreKind } from '../guarded-store.ts';
import type {
  ConditionSupport,
  ListedObject,
  ObjectFacts,
  ObjectStore,
  Outcome,
  StoreCapabilities,
  StoredRange,
} from '../object-store.ts';
import { prefixOf, storeUrl } from '../store-url.ts';
import { openS3Client } from './client.ts';
import {
  isConditionUnknown,
  isTaken,
  mayHaveHappened,
  s3Error,
} from './errors.ts';
import {
  listObjects,
  readFacts,
  readObject,
  undefinedIfAbsent,
} from './read-object.ts';
import {
  abortUploads,
  type Conditionally,
  type Keeping,
  PART_BYTES,
  type PartsSource,
  readKeeping,
  type Send,
  type Target,
  uploadInParts,
  type Where,
} from './upload.ts';

const PATIENCE_MS = 60_000;
const IF_ABSENT = { IfNoneMatch: '*' } as const;

export interface StoreOptions {
  /** `s3://bucket/prefix?region=…&endpoint=…`, or for a folder `file:///dir`. */
  readonly url: URL;
  /**
   * The folder in which objects for S3 are written before they are uploaded. A file store
   * spools within its own folder, to stay on one filesystem.
   */
  readonly spoolDir: string;
  /** The AWS_… variables, from the environment or from `.env`. */
  readonly ambient: Readonly<Record<string, string>>;
  /** The umask for new files in a folder; by default the umask of the process. */
  readonly umask?: number | undefined;
  /**
   * How long a call waits for a store that is unreachable or busy; a minute by default.
   */
  readonly patienceMs?: number | undefined;
}

/**
 * Opens a store in a bucket.
 * @throws UsageError if the endpoint is not a URL
 */
export function openS3Store(options: StoreOptions): ObjectStore {
  return guardStore(new S3Store(options));
}

class S3Store implements StoreKind {
  readonly url: string;
  readonly secret: SecretState;
  readonly spoolDir: string;
  capabilities?: StoreCapabilities;
  readonly #client: S3;
  readonly #where: Where;
  readonly #keeping: Keeping;
  /** The address of the proxy in front of the store, if there is one. */
  readonly #proxy: string | undefined;

  constructor({
    url,
    spoolDir,
    ambient,
    patienceMs = PATIENCE_MS,
  }: StoreOptions) {
    const prefix = prefixOf(url);
    this.url = storeUrl(url);
    this.spoolDir = spoolDir;
    const { client, proxy, credentials } = openS3Client(
      url,
      ambient,
      patienceMs,
    );
    this.#client = client;
    this.secret = credentials;
    this.#proxy = proxy;
    this.#keeping = readKeeping(url);
    this.#where = {
      Bucket: url.host,
      Prefix: prefix === '' ? '' : `${prefix}/`,
    };
  }

  async putFile(
    key: string,
    path: string,
    facts: FileFacts,
    signal: AbortSignal,
  ): Promise<Outcome> {
    await using file = await open(path, 'r');
    if (facts.bytes <= BigInt(PART_BYTES)) {
      return await this.#putOnce(key, await file.readFile(), facts, signal);
    }

    const source: PartsSource = {
      ...facts,
      async readPart(start, length) {
        const part = Buffer.allocUnsafe(length);
        const { buffer, bytesRead } = await file.read(part, 0, length, start);
        return buffer.subarray(0, bytesRead);
      },
    };
    const target = this.#targetOf(key);
    return await this.#writeOnce(
      target,
      facts,
      'multipart',
      signal,
      (conditionally) =>
        this.#uploadInParts(target, source, conditionally, signal),
    );
  }

  putBytes(
    key: string,
    content: Buffer,
    signal: AbortSignal,
  ): Promise<Outcome> {
    return this.#putOnce(key, content, contentFacts(content), signal);
  }

  async replaceBytes(
    key: string,
    content: Buffer,
    signal: AbortSignal,
  ): Promise<void> {
    await this.#sendPut(key, content, contentFacts(content), signal)({});
  }

  tryPut(
    key: string,
    content: Buffer,
    signal: AbortSignal,
  ): Promise<ConditionSupport> {
    const send = this.#sendPut(key, content, contentFacts(content), signal);
    return answerToCondition(send(IF_ABSENT));
  }

  tryInParts(
    key: string,
    content: Buffer,
    signal: AbortSignal,
  ): Promise<ConditionSupport> {
    const source: PartsSource = {
      ...contentFacts(content),
      readPart: async () => content,
    };
    const ifAbsent: Conditionally = (send) => send(IF_ABSENT);
    return answerToCondition(
      this.#uploadInParts(this.#targetOf(key), source, ifAbsent, signal),
    );
  }

  head(key: string, signal: AbortSignal): Promise<ObjectFacts | undefined> {
    return readFacts(this.#client, this.#targetOf(key), signal);
  }

  async read(
    key: string,
    signal: AbortSignal,
    range?: StoredRange,
  ): Promise<Readable | undefined> {
    const reading = readObject(
      this.#client,
      this.#targetOf(key),
      signal,
      range,
    );
    const opened = await reading.catch(undefinedIfAbsent);
    if (opened === undefined) return undefined;
    const bytes = this.#mapErrors(`read ${key}`, opened.bytes);
    return Readable.from(bytes, { objectMode: false });
  }

  async *#mapErrors(
    what: string,
    bytes: AsyncIterable<Buffer>,
  ): AsyncGenerator<Buffer> {
    try {
      yield* bytes;
    } catch (error) {
      throw this.mapError(what, error);
    }
  }

  list(prefix: string, signal: AbortSignal): AsyncGenerator<ListedObject> {
    return listObjects(this.#client, this.#where, prefix, signal);
  }

  async remove(key: string, abortSignal: AbortSignal): Promise<void> {
    await this.#client.deleteObject(this.#targetOf(key), { abortSignal });
  }

  abortUploads(beforeMs: number, signal: AbortSignal): Promise<number> {
    return abortUploads(this.#client, this.#where, beforeMs, signal);
  }

  mapError(what: string, error: unknown): Error {
    if (isDiskError(error)) {
      return fileError(`${what} by way of ${this.spoolDir}`, error);
    }
    return s3Error(what, this.url, error, this.#proxy);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#client.destroy();
  }

  #targetOf(key: string): Target {
    const { Bucket, Prefix } = this.#where;
    return { Bucket, Key: Prefix + key };
  }

  #uploadInParts(
    target: Target,
    source: PartsSource,
    conditionally: Conditionally,
    signal: AbortSignal,
  ): Promise<void> {
    const keeping = this.#keeping;
    return uploadInParts(
      this.#client,
      target,
      source,
      keeping,
      conditionally,
      signal,
    );
  }

  #sendPut(
    key: string,
    content: Buffer,
    { sha256 }: FileFacts,
    abortSignal: AbortSignal,
  ): Send {
    const input = {
      ...this.#targetOf(key),
      ...this.#keeping,
      Body: content,
      ContentLength: content.length,
      ChecksumSHA256: Buffer.from(sha256, 'hex').toString('base64'),
      Metadata: { sha256 },
    };
    return (condition) =>
      this.#client.putObject({ ...input, ...condition }, { abortSignal });
  }

  #putOnce(
    key: string,
    content: Buffer,
    facts: FileFacts,
    signal: AbortSignal,
  ): Promise<Outcome> {
    const send = this.#sendPut(key, content, facts, signal);
    const target = this.#targetOf(key);
    return this.#writeOnce(target, facts, 'put', signal, (conditionally) =>
      conditionally(send),
    );
  }

  /**
   * Writes if the key is absent. Unless a successful response is proof enough
   * (`#hasOneWriter`), the object found under the key afterwards decides the outcome.
   * @param write receives a function that sends a call with the condition "only if
   *   absent". If the store does not support conditions and the key is absent, the
   *   function sends the call again without the condition
   */
  async #writeOnce(
    target: Target,
    facts: FileFacts,
    way: 'put' | 'multipart',
    signal: AbortSignal,
    write: (conditionally: Conditionally) => Promise<unknown>,
  ): Promise<Outcome> {
    const before = await this.#findOutcome(target, facts, signal);
    if (before !== undefined) return before;

    const conditionally: Conditionally = async (send) => {
      try {
        return await send(IF_ABSENT);
      } catch (error) {
        if (!isConditionUnknown(error)) throw error;
        const taken = await this.#findOutcome(target, facts, signal);
        if (taken !== undefined) throw error;
        return send({});
      }
    };

    let failure: Error | undefined;
    try {
      await write(conditionally);
      if (this.#hasOneWriter(way)) return 'written';
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof Error) || !mayHaveHappened(error)) throw error;
      failure = error;
    }

    const after = await this.#findOutcomeAfter(failure, target, facts, signal);
    if (after !== undefined) return after;
    if (failure !== undefined) throw failure;
    const { Bucket, Key: key } = target;
    throw new RetryableError(
      `Cannot publish s3://${Bucket}/${key}: it disappeared immediately; ` +
        'find out what else removes objects there',
      { code: 'OBJECT_CLEARED', meta: { key } },
    );
  }

  /**
   * Whether the store reports success to only one of several writers. If so, a successful
   * response alone proves that this writer's bytes are under the key.
   */
  #hasOneWriter(way: 'put' | 'multipart'): boolean {
    const { capabilities } = this;
    return (
      capabilities?.hasOneWinner === true && capabilities[way] === 'honoured'
    );
  }

  /**
   * Compares the object under the key with the given facts.
   * @returns undefined if the key is absent
   */
  async #findOutcome(
    target: Target,
    facts: FileFacts,
    signal: AbortSignal,
  ): Promise<Outcome | undefined> {
    const found = await readFacts(this.#client, target, signal);
    if (found === undefined) return undefined;
    const isSame = found.bytes === facts.bytes && found.sha256 === facts.sha256;
    return isSame ? 'written' : 'present';
  }

  /**
   * Looks up the object after a write. If both the write and the look-up fail, the
   * write's error is thrown.
   */
  async #findOutcomeAfter(
    failure: Error | undefined,
    target: Target,
    facts: FileFacts,
    signal: AbortSignal,
  ): Promise<Outcome | undefined> {
    try {
      return await this.#findOutcome(target, facts, signal);
    } catch (error) {
      throw failure ?? error;
    }
  }
}

/**
 * Whether an error comes from the local disk, where the spool is, and not from the store.
 */
function isDiskError(error: unknown): boolean {
  return error instanceof Error && 'path' in error && 'syscall' in error;
}

/** Interprets the response to a conditional write for a key that already exists. */
async function answerToCondition(
  write: Promise<unknown>,
): Promise<ConditionSupport> {
  try {
    await write;
    return 'ignored';
  } catch (error) {
    if (isTaken(error)) return 'honoured';
    if (isConditionUnknown(error)) return 'refused';
    throw error;
  }
}
