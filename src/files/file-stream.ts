/** Streams of local files that take no more memory than the file has bytes. */
import type { ReadStream } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';

/** Large enough that a large file is read fast. */
const PIECE_BYTES = 2 ** 20;

export interface FileStreamOptions {
  readonly signal?: AbortSignal;
  /** The first byte. */
  readonly start?: number;
  /** The last byte, included; that of the file if it is absent. */
  readonly end?: number;
}

/**
 * Streams an open file, and closes it with the stream. A stream of Node takes a piece's
 * memory for each file, and as much again to find its end. So it is given the end: most
 * objects of a mirror have a few hundred bytes, and nothing writes to a file that is read.
 */
export async function streamOpenFile(
  file: FileHandle,
  { signal, start = 0, end }: FileStreamOptions = {},
): Promise<ReadStream> {
  try {
    const { size } = await file.stat();
    // An empty file has no last byte; one byte is asked for, and none comes.
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

/** @throws the error of opening the file */
export async function streamFile(
  path: string,
  options: FileStreamOptions = {},
): Promise<ReadStream> {
  return streamOpenFile(await open(path, 'r'), options);
}
