/** Streams local files; small files need only as much memory as their size. */
import type { ReadStream } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';

/** The size of each read, which is large enough to read large files fast. */
const PIECE_BYTES = 2 ** 20;

export interface FileStreamOptions {
  readonly signal?: AbortSignal;
  /** The offset of the first byte to read. */
  readonly start?: number;
  /** The offset of the last byte to read, inclusive; by default, the file's last byte. */
  readonly end?: number;
}

/**
 * Streams an open file, and closes it when the stream closes. A Node stream allocates a
 * whole buffer for each file, and another one to detect the end of the file. Passing the
 * end of the file to the stream saves the second one, which matters because most of a
 * mirror's objects have only a few hundred bytes. It is safe, because no file changes
 * while it is being read.
 */
export async function streamOpenFile(
  file: FileHandle,
  { signal, start = 0, end }: FileStreamOptions = {},
): Promise<ReadStream> {
  try {
    const { size } = await file.stat();
    // An empty file has no last byte, so the stream requests one byte and gets none.
    const last = Math.max(0, size - 1);
    return file.createReadStream({
      highWaterMark: PIECE_BYTES,
      start,
      end: end === undefined ? last : Math.min(end, last),
      ...(signal && { signal }),
    });
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Opens and streams a file. @throws the error from opening the file */
export async function streamFile(
  path: string,
  options: FileStreamOptions = {},
): Promise<ReadStream> {
  return streamOpenFile(await open(path, 'r'), options);
}
