/** The bytes of an object as one stream, which goes on where a connection broke. */
import { Readable } from 'node:stream';
import { GetObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import { retryOf } from './errors.ts';

/** Of one object; the bytes that came before are not asked for again. */
const BREAKS_MAX = 10;

export interface Target {
  readonly Bucket: string;
  readonly Key: string;
}

export interface Range {
  readonly start: bigint;
  /** Exclusive. */
  readonly end: bigint;
}

/**
 * Resolves when the first answer is there.
 * @throws the SDK's error; the stream, too
 */
export async function readObject(
  client: S3Client,
  target: Target,
  range: Range | undefined,
  signal: AbortSignal,
): Promise<AsyncGenerator<Buffer>> {
  const first = await ask(client, target, range, signal);
  const start = range?.start ?? 0n;
  return bytesOf(client, target, { start, end: start + first.bytes }, first.body, signal);
}

async function* bytesOf(
  client: S3Client,
  target: Target,
  { start, end }: Range,
  first: Readable,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  let body = first;
  let at = start;
  for (let breaks = 0; ; breaks += 1) {
    try {
      for await (const chunk of body as AsyncIterable<Buffer>) {
        at += BigInt(chunk.length);
        yield chunk;
      }
      return;
    } catch (error) {
      signal.throwIfAborted();
      if (at >= end || breaks >= BREAKS_MAX || retryOf(error) === 'never') throw error;
    }
    ({ body } = await ask(client, target, { start: at, end }, signal));
  }
}

async function ask(
  client: S3Client,
  target: Target,
  range: Range | undefined,
  signal: AbortSignal,
): Promise<{ body: Readable; bytes: bigint }> {
  const Range = range === undefined ? {} : { Range: `bytes=${range.start}-${range.end - 1n}` };
  const answer = await client.send(new GetObjectCommand({ ...target, ...Range }), { abortSignal: signal });
  if (!(answer.Body instanceof Readable)) throw new TypeError('no body came with the object');
  return { body: answer.Body, bytes: BigInt(answer.ContentLength ?? 0) };
}
