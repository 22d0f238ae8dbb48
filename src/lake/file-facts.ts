import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';

/** Size and SHA-256 of a local file. */
export async function fileFacts(
  path: string,
  signal: AbortSignal,
): Promise<{ readonly bytes: bigint; readonly sha256: string }> {
  const hash = createHash('sha256');
  let bytes = 0n;
  for await (const chunk of createReadStream(path, {
    signal,
    highWaterMark: 2 ** 20,
  }) as AsyncIterable<Buffer>) {
    hash.update(chunk);
    bytes += BigInt(chunk.length);
  }
  return { bytes, sha256: hash.digest('hex') };
}
