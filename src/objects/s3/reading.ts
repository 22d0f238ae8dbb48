/** The bytes of an object as one stream, which goes on where a connection broke. */
import { Readable } from 'node:stream';
import { GetObjectCommand, type GetObjectCommandOutput, type S3Client } from '@aws-sdk/client-s3';
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

/** One GET of an object, or of a range of it. @throws the SDK's error */
export async function getObject(
  client: S3Client,
  target: Target,
  range: Range | undefined,
  signal: AbortSignal,
): Promise<GetObjectCommandOutput & { readonly Body: Readable }> {
  const Range = range === undefined ? undefined : `bytes=${range.start}-${range.end - 1n}`;
  const { Body, ...described } = await client.send(new GetObjectCommand({ ...target, Range }), {
    abortSignal: signal,
  });
  if (!(Body instanceof Readable)) throw new TypeError('no body came with the object');
  return { ...described, Body };
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
  const first = await getObject(client, target, range, signal);
  const start = range?.start ?? 0n;
  const end = start + BigInt(first.ContentLength ?? 0);
  return (async function* () {
    let body = first.Body;
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
      body = (await getObject(client, target, { start: at, end }, signal)).Body;
    }
  })();
}
