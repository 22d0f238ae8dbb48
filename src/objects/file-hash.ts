/** SHA-256 of a file or of anything that streams, with flat memory. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';

/** Hex SHA-256 of the file's bytes. */
export async function fileSha256(path: string, signal: AbortSignal): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path, { signal, highWaterMark: 2 ** 20 })) {
    hash.update(chunk as Buffer);
  }
  return hash.digest('hex');
}
