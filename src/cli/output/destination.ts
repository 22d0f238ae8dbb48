/**
 * Where a command writes what it was asked for: a file that appears whole or not at all,
 * a device or pipe, or stdout.
 */
import { once } from 'node:events';
import { accessSync, constants, createWriteStream, statSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Writable } from 'node:stream';
import { finished, pipeline } from 'node:stream/promises';
import { errorCode } from '../../errors/errors.ts';
import type { CommandContext } from '../context.ts';
import { formatQuantity, printable } from './format.ts';

export const STDOUT = '-';
const LINE_FEED = 0x0a;

/**
 * @param option that names the path
 * @returns what would make writing there fail, found before anything is asked of anybody
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

/** A device or a pipe is written to, and never replaced. */
function isReplaced(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() ?? true;
}

/** What a command wrote, in decimal text, and where. */
export type Written = Readonly<Record<'rows' | 'file', string>>;

export function formatWritten({ rows, file }: Written): string {
  return (
    `${formatQuantity(rows, rows === '1' ? 'row' : 'rows')} written to ` +
    `${printable(file)}\n`
  );
}

/** @param write its writable is ended behind it */
export async function writeOutput<Result>(
  path: string,
  signal: AbortSignal,
  write: (output: Writable) => Promise<Result>,
): Promise<Result> {
  const isWhole = isReplaced(path);
  const target = isWhole ? `${path}.partial-${process.pid}` : path;
  // What a killed process left, or somebody put there, is not written to.
  if (isWhole) await rm(target, { force: true });
  const output = createWriteStream(target, {
    flush: isWhole,
    flags: isWhole ? 'wx' : 'w',
  });
  const written = finished(output);
  // Told below, or by `write`.
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

/** @returns how many rows were written, the header not counted, and where */
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
  // A reader of stdout such as `head` may stop early.
  if (out === STDOUT) await send(stdout).catch(unlessBrokenPipe);
  else await writeOutput(out, signal, send);
  return { rows: String(lines > 0n ? lines - 1n : 0n), file: out };
}

/** @throws any other error */
export function unlessBrokenPipe(error: unknown): void {
  if (errorCode(error) !== 'EPIPE') throw error;
}
