/** Where `--out` puts a CSV: a file that appears whole or not at all, a device or pipe, or stdout. */
import { createWriteStream } from 'node:fs';
import { access, constants, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { errorCode } from '../../core/errors.ts';
import type { CommandContext } from '../context.ts';

const STDOUT = '-';
const LINE_FEED = 0x0a;

/** What would make writing there fail, found before anything is asked of anybody. */
export async function outProblem(out: string): Promise<string | undefined> {
  if (out === STDOUT) return undefined;
  const found = await stat(out).catch(() => undefined);
  if (found?.isDirectory() === true) return `--out: ${out} is a directory; give a file`;
  const isReplaced = found === undefined || found.isFile();
  const target = isReplaced ? dirname(out) : out;
  return access(target, constants.W_OK).then(
    () => undefined,
    (error: unknown) => `--out: ${target} cannot be written (${errorCode(error)}); give another place`,
  );
}

/** @returns how many rows were written, the header not counted */
export async function writeCsv(
  csv: AsyncIterable<Buffer>,
  out: string,
  context: Pick<CommandContext, 'stdout' | 'signal'>,
): Promise<bigint> {
  let lines = 0n;
  await writeTo(
    async function* counted() {
      for await (const chunk of csv) {
        for (let at = chunk.indexOf(LINE_FEED); at !== -1; at = chunk.indexOf(LINE_FEED, at + 1)) lines += 1n;
        yield chunk;
      }
    },
    out,
    context,
  );
  return lines > 0n ? lines - 1n : 0n;
}

async function writeTo(
  csv: () => AsyncGenerator<Buffer>,
  out: string,
  { stdout, signal }: Pick<CommandContext, 'stdout' | 'signal'>,
): Promise<void> {
  if (out === STDOUT) {
    // Whoever reads it, such as `head`, may have read enough.
    await pipeline(csv, stdout, { end: false, signal }).catch(unlessBrokenPipe);
    return;
  }
  const found = await stat(out).catch(() => undefined);
  if (found !== undefined && !found.isFile()) {
    await pipeline(csv, createWriteStream(out), { signal });
    return;
  }
  const partial = `${out}.partial-${process.pid}`;
  try {
    await pipeline(csv, createWriteStream(partial, { flush: true }), { signal });
    await rename(partial, out);
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
}

function unlessBrokenPipe(error: unknown): void {
  if (errorCode(error) !== 'EPIPE') throw error;
}
