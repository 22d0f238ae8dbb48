/**
 * Objects in an S3 bucket. Each is written under a condition, with its checksum, and carries the SHA-256
 * of its bytes as metadata: whether a lost or contradicted write has happened is settled by asking.
 */
import { open } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { paginateListObjectsV2, type S3 } from '@aws-sdk/client-s3';
import { RetryableError } from '../../errors/errors.ts';
import { type FileFacts, contentFacts } from '../../files/byte-counter.ts';
import { fileError } from '../file-store.ts';
import type { ConditionSupport, ObjectStore, Outcome } from '../object-store.ts';
import { openStore, type StoreKind } from '../guarded-store.ts';
import { prefixOf, storeUrl } from '../store-url.ts';
import { openS3Client } from './client.ts';
import {
  isConditionUnknown,
  isMissing,
  isTaken,
  isWorthAsking,
  retryOf,
  s3Error,
  statusOf,
} from './errors.ts';
import {
  abortUploads,
  PART_BYTES,
  type Send,
  type Target,
  uploadInParts,
  type Where,
} from './upload.ts';

const PATIENCE_MS = 60_000;
const IF_ABSENT = { IfNoneMatch: '*' } as const;
/** Of one object; the bytes that came before are not asked for again. */
const BREAKS_MAX = 10;

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
export function openS3Store({
  url,
  spoolDir,
  ambient,
  patienceMs = PATIENCE_MS,
}: StoreOptions): ObjectStore {
  const client = openS3Client(url, ambient, patienceMs);
  const shownUrl = storeUrl(url);
  const where = { Bucket: url.host, Prefix: prefixOf(url) && `${prefixOf(url)}/` };
  const targetOf = (key: string): Target => ({
    Bucket: url.host,
    Key: where.Prefix + key,
  });
  const mapError = (what: string, error: unknown) =>
    isOfDisk(error)
      ? fileError(`${what} by way of ${spoolDir}`, error)
      : s3Error(what, shownUrl, error);
  const put = (
    key: string,
    content: Buffer,
    { sha256 }: FileFacts,
    abortSignal: AbortSignal,
  ): Send => {
    const checksum = Buffer.from(sha256, 'hex').toString('base64');
    const sums = {
      ContentLength: content.length,
      ChecksumSHA256: checksum,
      Metadata: { sha256 },
    };
    const input = { ...targetOf(key), Body: content, ...sums };
    return (condition) => client.putObject({ ...input, ...condition }, { abortSignal });
  };
  /** Only one writer is told that it wrote: the answer needs no second look. */
  const isTold = (how: 'put' | 'multipart') =>
    kind.known?.hasOneWinner === true && kind.known[how] === 'honoured';
  const putOnce = (
    key: string,
    content: Buffer,
    facts: FileFacts,
    signal: AbortSignal,
  ) => {
    const send = put(key, content, facts, signal);
    return writeOnce(
      client,
      targetOf(key),
      facts,
      signal,
      isTold('put'),
      (conditionally) => conditionally(send),
    );
  };

  const kind: StoreKind = {
    url: shownUrl,
    spoolDir,
    async putFile(key, path, facts, signal) {
      await using file = await open(path, 'r');
      if (facts.bytes <= BigInt(PART_BYTES))
        return await putOnce(key, await file.readFile(), facts, signal);
      const readPart = async (start: number, length: number) => {
        const { buffer: part, bytesRead } = await file.read(
          Buffer.allocUnsafe(length),
          0,
          length,
          start,
        );
        return part.subarray(0, bytesRead);
      };
      return await writeOnce(
        client,
        targetOf(key),
        facts,
        signal,
        isTold('multipart'),
        (conditionally) =>
          uploadInParts(
            client,
            targetOf(key),
            { ...facts, readPart },
            conditionally,
            signal,
          ),
      );
    },
    putBytes: (key, content, signal) =>
      putOnce(key, content, contentFacts(content), signal),
    tryPut: (key, content, signal) =>
      supportOf(put(key, content, contentFacts(content), signal)(IF_ABSENT)),
    tryInParts(key, content, signal) {
      const source = { ...contentFacts(content), readPart: async () => content };
      return supportOf(
        uploadInParts(client, targetOf(key), source, (send) => send(IF_ABSENT), signal),
      );
    },
    head: (key, signal) => readFacts(client, targetOf(key), signal),
    async read(key, signal, range) {
      const found = await readObject(client, targetOf(key), signal, range).catch(
        unlessMissing,
      );
      if (found === undefined) return undefined;
      async function* bytes() {
        try {
          if (found) yield* found.bytes;
        } catch (error) {
          throw mapError(`read ${key}`, error);
        }
      }
      return Readable.from(bytes(), { objectMode: false });
    },
    list: (below, signal) => listObjects(client, where, below, signal),
    async remove(key, abortSignal) {
      await client.deleteObject(targetOf(key), { abortSignal });
    },
    abortUploads: (beforeMs, signal) => abortUploads(client, where, beforeMs, signal),
    mapError,
    [Symbol.asyncDispose]: async () => client.destroy(),
  };
  return openStore(kind);
}

/**
 * Writes if absent. The object found afterwards decides, whatever the answer to the write was.
 * @param write gets what sends a call under the condition, and without where the store knows none and nothing lies there
 */
async function writeOnce(
  client: S3,
  target: Target,
  facts: FileFacts,
  signal: AbortSignal,
  isTold: boolean,
  write: (conditionally: (send: Send) => Promise<unknown>) => Promise<unknown>,
): Promise<Outcome> {
  const find = async () => {
    const found = await readFacts(client, target, signal);
    if (found === undefined) return undefined;
    return found.bytes === facts.bytes && found.sha256 === facts.sha256
      ? 'written'
      : 'present';
  };
  const before = await find();
  if (before !== undefined) return before;
  let failure: Error | undefined;
  try {
    await write((send) =>
      send(IF_ABSENT).catch(async (error: unknown) => {
        if (!isConditionUnknown(error) || (await find()) !== undefined) throw error;
        return send({});
      }),
    );
    if (isTold) return 'written';
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof Error) || !isWorthAsking(error)) throw error;
    failure = error;
  }
  const after = await find().catch((error: unknown) => {
    throw failure ?? error;
  });
  if (after !== undefined) return after;
  const { Bucket, Key: key } = target;
  const state = 'it was cleared away at once; look for what else removes objects there';
  const cleared = { code: 'OBJECT_CLEARED', meta: { key } };
  throw (
    failure ??
    new RetryableError(`Cannot publish s3://${Bucket}/${key}: ${state}`, cleared)
  );
}

/** Of the spool: what the local disk says is no fault of the store. */
function isOfDisk(error: unknown): boolean {
  return error instanceof Error && 'path' in error && 'syscall' in error;
}

/** By a GET of one byte: an answer to HEAD has no body that could tell an error. */
async function readFacts(client: S3, target: Target, signal: AbortSignal) {
  try {
    const { headers, bytes } = await readObject(client, target, signal, {
      start: 0n,
      end: 1n,
    });
    while ((await bytes.next()).done !== true);
    const size = BigInt(headers.ContentRange?.split('/').at(-1) ?? 0);
    return { bytes: size, sha256: headers.Metadata?.['sha256'] };
  } catch (error) {
    // Not satisfiable: what lies there is empty.
    return statusOf(error) === 416 ? contentFacts(Buffer.alloc(0)) : unlessMissing(error);
  }
}

function unlessMissing(error: unknown): undefined {
  if (!isMissing(error)) throw error;
}

/**
 * Resolves when the first answer is there; the bytes go on where a connection broke.
 * @throws the SDK's error; the stream, too
 */
async function readObject(
  client: S3,
  target: Target,
  signal: AbortSignal,
  range?: { readonly start: bigint; readonly end: bigint },
) {
  const get = async (asked: typeof range) => {
    const Range =
      asked === undefined ? undefined : `bytes=${asked.start}-${asked.end - 1n}`;
    const { Body, ...headers } = await client.getObject(
      { ...target, Range },
      { abortSignal: signal },
    );
    if (!(Body instanceof Readable)) throw new TypeError('no body came with the object');
    return { headers, body: Body as AsyncIterable<Buffer> };
  };
  const first = await get(range);
  const start = range?.start ?? 0n;
  const end = start + BigInt(first.headers.ContentLength ?? 0);
  async function* bytes(): AsyncGenerator<Buffer> {
    let [{ body }, at] = [first, start];
    for (let breaks = 0; ; breaks += 1) {
      try {
        for await (const chunk of body) {
          at += BigInt(chunk.length);
          yield chunk;
        }
        return;
      } catch (error) {
        signal.throwIfAborted();
        if (at >= end || breaks >= BREAKS_MAX || retryOf(error) === 'never') throw error;
      }
      ({ body } = await get({ start: at, end }));
    }
  }
  return { headers: first.headers, bytes: bytes() };
}

async function* listObjects(
  client: S3,
  where: Where,
  below: string,
  abortSignal: AbortSignal,
) {
  const asked = { ...where, Prefix: where.Prefix + below };
  const pages = paginateListObjectsV2({ client }, asked, { abortSignal });
  for await (const { Contents: found = [], IsTruncated: isCut } of pages) {
    for (const { Key: key = '', Size: size = 0, LastModified: modified } of found) {
      const modifiedAt = BigInt(modified?.getTime() ?? 0) * 1000n;
      yield { key: key.slice(where.Prefix.length), bytes: BigInt(size), modifiedAt };
    }
    // Some stores send a token with the last page.
    if (isCut !== true) return;
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
