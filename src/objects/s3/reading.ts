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

/**
 * Resolves when the first answer is there.
 * @throws the SDK's error; the stream, too
 */
export async function readObject(
  client: S3Client,
  target: Target,
  range: Range | undefined,
  signal: AbortSignal,
): Promise<{
  readonly headers: Omit<GetObjectCommandOutput, 'Body'>;
  readonly bytes: AsyncGenerator<Buffer>;
}> {
  const get = async (asked: Range | undefined) => {
    const Range = asked === undefined ? undefined : `bytes=${asked.start}-${asked.end - 1n}`;
    const command = new GetObjectCommand({ ...target, Range });
    const { Body, ...headers } = await client.send(command, { abortSignal: signal });
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
