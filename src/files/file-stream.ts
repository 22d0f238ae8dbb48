/** Streams local files without using more memory than the size of the file. */
import type { ReadStream } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';

/** The size of one read: large enough to read a large file fast. */
const PIECE_BYTES = 2 ** 20;

export interface FileStreamOptions {
  readonly signal?: AbortSignal;
  /** The offset of the first byte to read. */
  readonly start?: number;
  /**
   * The offset of the last byte to read, inclusive. If absent, the file's last byte.
   */
  readonly end?: number;
}

/**
 * Streams an open file, and closes the file when the stream closes. A Node stream
 * allocates a whole piece of memory for each file, and another piece to find the file's
 * end. The end is therefore passed to it: most objects of a mirror have a few hundred
 * bytes, and a file does not change while it is read.
 */
export async function streamOpenFile(
  file: FileHandle,
  { signal, start = 0, end }: FileStreamOptions = {},
): Promise<ReadStream> {
  try {
    const { size } = await file.stat();
    // An empty file has no last byte: the stream requests one byte, and gets none.
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
