/** A stream of rows as files of bounded size, the next one written while the last one is used. */
import { type FileHandle, open, rm } from 'node:fs/promises';

const LINE_FEED = 0x0a;

/**
 * Yields the path of each file when it is written; the file is then the caller's. Every line feed ends a
 * row: values escape it, or have none. No rows, no file.
 */
export async function* rowParts(
  rows: AsyncIterable<Buffer>,
  nextPath: () => Promise<string>,
  partBytesMax: number,
): AsyncGenerator<string, undefined> {
  let part: { readonly path: string; readonly file: FileHandle; bytes: number } | undefined;
  const begin = async (): Promise<NonNullable<typeof part>> => {
    const path = await nextPath();
    return { path, file: await open(path, 'wx'), bytes: 0 };
  };
  const end = async (): Promise<string | undefined> => {
    const path = part?.path;
    await part?.file.close();
    part = undefined;
    return path;
  };
  try {
    for await (const chunk of rows) {
      part ??= await begin();
      const border = part.bytes + chunk.length > partBytesMax ? chunk.lastIndexOf(LINE_FEED) + 1 : 0;
      if (border > 0) {
        await part.file.writeFile(chunk.subarray(0, border));
        const path = await end();
        if (path !== undefined) yield path;
      }
      const rest = chunk.subarray(border);
      if (rest.length === 0) continue;
      part ??= await begin();
      await part.file.writeFile(rest);
      part.bytes += rest.length;
    }
    const path = await end();
    if (path !== undefined) yield path;
    return undefined;
  } finally {
    if (part !== undefined) {
      await part.file.close().catch(() => undefined);
      await rm(part.path, { force: true });
    }
  }
}

/**
 * Asks for the next item before it hands out the one in hand.
 * @param discard gets the item that was made but not asked for any more
 */
export async function* oneAhead<Item>(
  items: AsyncGenerator<Item, undefined>,
  discard: (item: Item) => Promise<void>,
): AsyncGenerator<Item, undefined> {
  const ask = (): Promise<IteratorResult<Item, undefined>> => {
    const asked = items.next();
    // Heard when it is awaited: until then nobody listens.
    asked.catch(() => undefined);
    return asked;
  };
  let next = ask();
  try {
    for (;;) {
      const step = await next;
      if (step.done === true) return undefined;
      next = ask();
      yield step.value;
    }
  } finally {
    const left = await next.catch(() => undefined);
    if (left?.done === false) await discard(left.value);
    await items.return(undefined);
  }
}
