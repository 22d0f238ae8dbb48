/**
 * Destinations of a command's output: a file that is written atomically, a device or
 * pipe, or stdout.
 */
import { once } from 'node:events';
import { accessSync, constants, createWriteStream, statSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Writable } from 'node:stream';
import { finished, pipeline } from 'node:stream/promises';
import { errorCode } from '../../errors/errors.ts';
import type { CommandContext } from '../context.ts';
import { formatQuantity } from '../../format/format.js';
import { printable } from './format.ts';

export const STDOUT = '-';
const LINE_FEED = 0x0a;

/**
 * Checks, before any work begins, whether the output can be written.
 * @param option the option that specified the path, for the message
 * @returns the problems that would prevent writing to the path
 */
export function outputProblems(
  option: string,
  path: string | undefined,
): readonly string[] {
  if (path === undefined || path === STDOUT) return [];
  try {
    const found = statSync(path, { throwIfNoEntry: false });
    if (found?.isDirectory() === true)
      return [`${option}: ${path} is a directory; give a file`];
    accessSync(isReplaced(path) ? dirname(path) : path, constants.W_OK);
    return [];
  } catch (error) {
    return [
      `${option}: cannot write ${path} (${errorCode(error)}); name a file in a ` +
        'folder that exists',
    ];
  }
}

/** Whether the path is replaced atomically. A device or a pipe is written to directly. */
function isReplaced(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() ?? true;
}

/**
 * The number of rows that a command wrote, as a decimal string, and the file that it
 * wrote to.
 */
export type Written = Readonly<Record<'rows' | 'file', string>>;

export function formatWritten({ rows, file }: Written): string {
  return (
    `${formatQuantity(rows, rows === '1' ? 'row' : 'rows')} written to ` +
    `${printable(file)}\n`
  );
}

/**
 * Writes a file that replaces `path` once it is complete; a device or pipe is written to
 * directly.
 * @param write writes the content; the stream is ended after it returns
 */
export async function writeOutput<Result>(
  path: string,
  signal: AbortSignal,
  write: (output: Writable) => Promise<Result>,
): Promise<Result> {
  const isWhole = isReplaced(path);
  const target = isWhole ? `${path}.partial-${process.pid}` : path;
  // Remove any file that a killed process or another user left under this name, and never
  // write to it.
  if (isWhole) await rm(target, { force: true });
  const output = createWriteStream(target, {
    flush: isWhole,
    flags: isWhole ? 'wx' : 'w',
  });
  const written = finished(output);
  // Prevents an unhandled rejection. The error is thrown later, or by `write`.
  written.catch(() => undefined);
  try {
    await once(output, 'open', { signal });
    const result = await write(output);
    output.end();
    await written;
    if (isWhole) await rename(target, path);
    return result;
  } catch (error) {
    output.destroy();
    if (isWhole) await rm(target, { force: true });
    throw error;
  }
}

/**
 * Writes CSV to a file or to stdout.
 * @returns the number of rows written, without the header, and where they went
 */
export async function writeCsv(
  csv: AsyncIterable<Buffer>,
  out: string,
  { stdout, signal }: Pick<CommandContext, 'stdout' | 'signal'>,
): Promise<Written> {
  let lines = 0n;
  async function* counted(): AsyncGenerator<Buffer> {
    for await (const chunk of csv) {
      for (
        let at = chunk.indexOf(LINE_FEED);
        at !== -1;
        at = chunk.indexOf(LINE_FEED, at + 1)
      )
        lines += 1n;
      yield chunk;
    }
  }
  const send = (output: Writable): Promise<void> =>
    pipeline(counted, output, { end: false, signal });
  // A reader of stdout such as `head` may close the pipe early.
  if (out === STDOUT) await send(stdout).catch(unlessBrokenPipe);
  else await writeOutput(out, signal, send);
  return { rows: String(lines > 0n ? lines - 1n : 0n), file: out };
}

/**
 * Ignores a broken pipe.
 * @throws any other error
 */
export function unlessBrokenPipe(error: unknown): void {
  if (errorCode(error) !== 'EPIPE') throw error;
}
