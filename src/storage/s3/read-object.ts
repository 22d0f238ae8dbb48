/**
 * Reads whole S3 objects, ranges of them, or only their facts, and resumes if a
 * connection breaks.
 */
import { Readable } from 'node:stream';
import { paginateListObjectsV2, type S3 } from '@aws-sdk/client-s3';
import { contentFacts } from '../../files/byte-counter.ts';
import type {
  ListedObject,
  ObjectFacts,
  StoredRange,
} from '../object-store.ts';
import { isMissing, retryOf, statusOf } from './errors.ts';
import type { Target, Where } from './upload.ts';

/**
 * How many times in a row a read may resume after its connection broke. The count starts
 * again after a connection that delivered `PROGRESS_BYTES`. Bytes that have arrived are
 * not read again.
 */
const BREAKS_MAX = 10;
/**
 * A connection that delivers this many bytes shows that the store works. A later break
 * may be due to a client of the mirror's own API: the connection also breaks whenever the
 * client pauses for longer than the store or our socket timeout allows. A client may
 * pause any number of times.
 */
const PROGRESS_BYTES = 64n * 1_024n;

/** Headers of the response to a GET. */
interface ObjectHeaders {
  readonly ContentLength?: number | undefined;
  readonly ContentRange?: string | undefined;
  readonly Metadata?: Readonly<Record<string, string>> | undefined;
}

/** An object that is being read. */
export interface OpenedObject {
  readonly headers: ObjectHeaders;
  readonly bytes: AsyncGenerator<Buffer>;
}

/**
 * Starts reading an object; resolves when the first response has arrived. The stream
 * resumes if a connection breaks.
 * @throws the SDK's error, as the stream does
 */
export async function readObject(
  client: S3,
  target: Target,
  signal: AbortSignal,
  range?: StoredRange,
): Promise<OpenedObject> {
  const first = await getObject(client, target, signal, range);
  const start = range?.start ?? 0n;
  const end = start + BigInt(first.headers.ContentLength ?? 0);

  async function* bytes(): AsyncGenerator<Buffer> {
    let body = first.body;
    let position = start;
    let breaks = 0;
    for (;;) {
      const openedAt = position;
      try {
        for await (const chunk of body) {
          position += BigInt(chunk.length);
          yield chunk;
        }
        return;
      } catch (error) {
        signal.throwIfAborted();
        if (position - openedAt >= PROGRESS_BYTES) breaks = 0;
        const isOver = position >= end || breaks >= BREAKS_MAX;
        if (isOver || retryOf(error) === 'never') throw error;
      }
      breaks += 1;
      const rest = { start: position, end };
      body = (await getObject(client, target, signal, rest)).body;
    }
  }

  return { headers: first.headers, bytes: bytes() };
}

/** The response to one GET. */
interface Answer {
  readonly headers: ObjectHeaders;
  readonly body: AsyncIterable<Buffer>;
}

async function getObject(
  client: S3,
  target: Target,
  abortSignal: AbortSignal,
  range: StoredRange | undefined,
): Promise<Answer> {
  const Range =
    range === undefined ? undefined : `bytes=${range.start}-${range.end - 1n}`;
  const { Body, ...headers } = await client.getObject(
    { ...target, Range },
    { abortSignal },
  );
  if (!(Body instanceof Readable))
    throw new TypeError('the object arrived without a body');
  return { headers, body: Body as AsyncIterable<Buffer> };
}

/**
 * Reads an object's facts with a GET of one byte, because the response to a HEAD has no
 * body that could describe an error.
 * @returns undefined if the key is absent
 */
export async function readFacts(
  client: S3,
  target: Target,
  signal: AbortSignal,
): Promise<ObjectFacts | undefined> {
  try {
    const range = { start: 0n, end: 1n };
    const { headers, bytes } = await readObject(client, target, signal, range);
    for await (const _ of bytes);
    const size = BigInt(headers.ContentRange?.split('/').at(-1) ?? 0);
    return { bytes: size, sha256: headers.Metadata?.['sha256'] };
  } catch (error) {
    // "Range not satisfiable" means that the object is empty.
    if (statusOf(error) === 416) return contentFacts(Buffer.alloc(0));
    return undefinedIfAbsent(error);
  }
}

/**
 * A handler for `.catch` that returns undefined if the key is absent and rethrows
 * anything else.
 */
export function undefinedIfAbsent(error: unknown): undefined {
  if (!isMissing(error)) throw error;
}

export async function* listObjects(
  client: S3,
  where: Where,
  prefix: string,
  abortSignal: AbortSignal,
): AsyncGenerator<ListedObject> {
  const listing = { ...where, Prefix: where.Prefix + prefix };
  const pages = paginateListObjectsV2({ client }, listing, { abortSignal });
  for await (const { Contents: contents = [], IsTruncated: isCut } of pages) {
    for (const {
      Key: key = '',
      Size: size = 0,
      LastModified: modified,
    } of contents) {
      const modifiedAt = BigInt(modified?.getTime() ?? 0) * 1000n;
      yield {
        key: key.slice(where.Prefix.length),
        bytes: BigInt(size),
        modifiedAt,
      };
    }
    // Some stores send a token with the last page.
    if (isCut !== true) return;
  }
}
