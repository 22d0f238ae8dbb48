/**
 * Answers questions about the lake by running `ledger-mirror query` in a separate
 * process: a statement can exhaust or crash that process, but never the API. The number
 * of concurrent statements, their run time and the size of their results are limited.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { text as readText } from 'node:stream/consumers';
import { z } from 'zod';
import { readAhead } from '../../files/read-ahead.ts';
import type { ReadyQuestion } from '../../lake/query/questions.ts';
import type { PlainRow } from '../../postgres/api-rows.ts';
import { StatusError } from '../kit/status-error.ts';

const OPTION = z.string().min(1).max(200).optional();

/** SQL, or a ready question with its options. */
export const QUESTION = z.union([
  z.strictObject({ sql: z.string().min(1).max(12_000) }),
  z.strictObject({
    question: z.string().regex(/^[a-z][a-z-]{1,40}$/),
    options: z
      .strictObject({
        since: OPTION,
        until: OPTION,
        month: OPTION,
        at: OPTION,
        party: OPTION,
        asset: OPTION,
      })
      .optional(),
  }),
]);
export type LakeQuestion = z.infer<typeof QUESTION>;

/** The format in which a result is downloaded. */
export const FILE = z.strictObject({ format: z.enum(['csv', 'parquet']) });
export const FILE_TYPES = {
  csv: 'text/csv; charset=utf-8',
  parquet: 'application/vnd.apache.parquet',
};

/** Rows as JSON values; amounts are strings. */
export interface LakeAnswer {
  readonly rows: readonly PlainRow[];
  /** Whether the result was truncated. */
  readonly isCut: boolean;
  readonly tookMs: number;
}

export interface LakeQueries {
  /**
   * Returns the tables of the lake, with their columns and with instructions for reading
   * them with other tools.
   */
  tables(): Promise<readonly object[]>;
  readonly questions: readonly Pick<
    ReadyQuestion,
    'name' | 'title' | 'parameters'
  >[];
  /**
   * Answers a question. Like `file`, it throws a StatusError if the statement fails, or
   * if too many statements are running.
   */
  ask(question: LakeQuestion, signal: AbortSignal): Promise<LakeAnswer>;
  /**
   * Returns the result as a file. The stream fails if the statement fails after its first
   * bytes.
   */
  file(
    question: LakeQuestion,
    format: keyof typeof FILE_TYPES,
    signal: AbortSignal,
  ): Promise<Readable>;
}

const AT_ONCE_MAX = 2;
/**
 * Maximum number of files that clients may be reading. The statements of most of them
 * have already finished.
 */
const FILES_MAX = 16;
/**
 * How much of a file is kept on the disk for a client that reads slowly or pauses. If a
 * file is longer, its statement has to wait for the client, within the statement's own
 * timeout.
 */
const AHEAD_BYTES_MAX = 64 * 2 ** 20;
const TIMEOUT_SECONDS = 60;
const ROWS_MAX = 5_000;
const ANSWER_CHARACTERS_MAX = 8_000_000;
const SAID_CHARACTERS_MAX = 4_000;

/**
 * Returns functions that run `ledger-mirror` in a separate process. `document` runs a
 * command without options, and returns its JSON output.
 * @param command the program and its leading arguments, which together start
 *   `ledger-mirror`
 * @param env the complete environment: only the object store's settings
 * @param scratchDir the folder for files that clients are reading
 */
export function openQueryRunner(
  [program, ...first]: readonly [string, ...string[]],
  env: Readonly<Record<string, string>>,
  scratchDir: string,
): Pick<LakeQueries, 'ask' | 'file'> & {
  document(command: string): Promise<unknown>;
} {
  let running = 0;
  let files = 0;
  const run = (args: readonly string[], signal: AbortSignal | undefined) => {
    const child = spawn(program, [...first, ...args], {
      env: { ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      signal,
      timeout: (TIMEOUT_SECONDS + 15) * 1_000,
    });
    const ended = untilEnded(child);
    // A caller that stops reading early never awaits `ended`; this keeps its rejection
    // from being unhandled.
    ended.catch(() => undefined);
    return { child, stdout: child.stdout, ended };
  };
  const query = (
    question: LakeQuestion,
    format: string,
    signal: AbortSignal,
  ) => {
    if (running >= AT_ONCE_MAX)
      throw new StatusError(
        'unavailable',
        'the lake is busy with other queries; try again in a moment',
      );
    running += 1;
    const [asked, options] =
      'sql' in question
        ? [question.sql]
        : [question.question, question.options];
    const given = Object.entries(options ?? {}).map(
      ([name, value]) => `--${name}=${value}`,
    );
    const bounds = [
      `--format=${format}`,
      `--timeout=${TIMEOUT_SECONDS}`,
      '--quiet',
    ];
    const started = run(['query', ...given, ...bounds, '--', asked], signal);
    started.child.once('close', () => {
      running -= 1;
    });
    return started;
  };
  return {
    document: async (command) => {
      const { stdout, ended } = run([command, '--json', '--quiet'], undefined);
      const [text] = await Promise.all([readText(stdout), ended]);
      return JSON.parse(text);
    },
    ask: async (question, signal) => {
      const startedMs = performance.now();
      const { child, stdout, ended } = query(question, 'ndjson', signal);
      const lines: string[] = [];
      let characters = 0;
      let isCut = false;
      for await (const line of createInterface({
        input: stdout,
        crlfDelay: Infinity,
      })) {
        characters += line.length;
        isCut = lines.length >= ROWS_MAX || characters > ANSWER_CHARACTERS_MAX;
        if (isCut) break;
        lines.push(line);
      }
      if (isCut) child.kill();
      // If the process exited in the middle of a line, this throws, so the partial line
      // is not parsed.
      else await ended;
      const rows = lines.map((line) => JSON.parse(line) as PlainRow);
      return { rows, isCut, tookMs: Math.round(performance.now() - startedMs) };
    },
    file: async (question, format, signal) => {
      if (files >= FILES_MAX)
        throw new StatusError(
          'unavailable',
          'too many results are being downloaded; try again in a moment',
        );
      files += 1;
      try {
        const { child, stdout, ended } = query(question, format, signal);
        // Until the first bytes are sent, the HTTP status can still report a failure.
        await Promise.race([once(stdout, 'readable'), ended]);
        // If there is no byte to read, the output has ended and the process is about to
        // exit.
        if (stdout.readableLength === 0) await ended;
        const limits = { dir: scratchDir, bytesMax: AHEAD_BYTES_MAX };
        const output = wholeOutput(stdout, ended);
        const file = await readAhead(output, limits).catch((error: unknown) => {
          child.kill();
          throw error;
        });
        return file.once('close', () => {
          files -= 1;
        });
      } catch (error) {
        files -= 1;
        throw error;
      }
    },
  };
}

/**
 * Yields the output of a process. It fails if the process fails, even if that happens
 * after the end of the output, because part of a file must not look like the whole.
 */
async function* wholeOutput(
  stdout: Readable,
  ended: Promise<void>,
): AsyncGenerator<Buffer> {
  yield* stdout as AsyncIterable<Buffer>;
  await ended;
}

/**
 * Waits for the process to exit.
 * @throws StatusError with the content of its stderr if it failed
 */
async function untilEnded(
  child: ChildProcessByStdio<null, Readable, Readable>,
): Promise<void> {
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(0, SAID_CHARACTERS_MAX);
  });
  child.once('error', (error) => {
    said ||= error.message;
  });
  const code = await new Promise((resolve) => child.once('close', resolve));
  // The page has fields instead of command-line options, so remove the dashes.
  const message = said.trim().replaceAll(/^ledger-mirror: (?:--)?/gm, '');
  if (code !== 0)
    throw new StatusError(
      'invalidArgument',
      message || 'the statement was ended',
    );
}
