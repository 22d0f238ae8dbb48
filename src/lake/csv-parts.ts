/** A stream of CSV rows as files of bounded size, one at a time. */
import { type FileHandle, open, rm } from 'node:fs/promises';

const LINE_FEED = 0x0a;

/**
 * Yields the path of each file when it is written, and removes it when the next one is asked for. No
 * quoted field holds a line end (JSON escapes it), so every line feed ends a row. No rows, no file.
 */
export async function* csvParts(
  rows: AsyncIterable<Buffer>,
  nextPath: () => Promise<string>,
  partBytesMax: number,
): AsyncGenerator<string> {
  let part: { readonly path: string; readonly file: FileHandle; bytes: number } | undefined;
  const begin = async (): Promise<NonNullable<typeof part>> => {
    const path = await nextPath();
    return { path, file: await open(path, 'wx'), bytes: 0 };
  };
  try {
    for await (const chunk of rows) {
      part ??= await begin();
      const border = part.bytes + chunk.length > partBytesMax ? chunk.lastIndexOf(LINE_FEED) + 1 : 0;
      if (border > 0) {
        await part.file.writeFile(chunk.subarray(0, border));
        await part.file.close();
        yield part.path;
        await rm(part.path, { force: true });
        part = border < chunk.length ? await begin() : undefined;
      }
      const rest = chunk.subarray(border);
      if (part === undefined || rest.length === 0) continue;
      await part.file.writeFile(rest);
      part.bytes += rest.length;
    }
    if (part === undefined) return;
    await part.file.close();
    yield part.path;
  } finally {
    if (part !== undefined) {
      await part.file.close().catch(() => undefined);
      await rm(part.path, { force: true });
    }
  }
}
