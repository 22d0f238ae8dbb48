/**
 * Answers questions about the lake by running `ledger-mirror query` in separate
 * processes: a statement can exhaust or crash its process, but never the API. The number
 * of concurrent statements, their run time and the size of their results are limited.
 * Each file gets a process of its own; answers come from processes that are reused.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { z } from 'zod';
import { readAhead } from '../../files/read-ahead.ts';
import type { ReadyQuestion } from '../../lake/query/questions.ts';
import type { PlainRow } from '../../postgres/api-rows.ts';
import { StatusError } from '../kit/status-error.ts';
import {
  CommandEndedError,
  type CommandProcesses,
  type CommandReply,
} from './command-processes.ts';

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
 * Maximum number of files that clients may be reading at the same time. It exceeds the
 * limit on statements, because most of these files' statements have already finished.
 */
const FILES_MAX = 16;
/**
 * How much of a file is kept on the disk for a client that reads slowly or pauses. The
 * statement of a longer file has to wait for the client, and the time spent waiting
 * counts towards the statement's timeout.
 */
const AHEAD_BYTES_MAX = 64 * 2 ** 20;
const TIMEOUT_SECONDS = 60;
/**
 * After this time a process is ended, even if the statement's own timeout did not work.
 */
export const ENDED_AFTER_MS = (TIMEOUT_SECONDS + 15) * 1_000;
const ROWS_MAX = 5_000;
const ANSWER_CHARACTERS_MAX = 8_000_000;
const SAID_CHARACTERS_MAX = 4_000;

export interface QueryRunnerOptions {
  /**
   * The program and its leading arguments, which together start `ledger-mirror` for one
   * command.
   */
  readonly command: readonly [string, ...string[]];
  /** Runs the commands whose output is small. */
  readonly processes: CommandProcesses;
  /** The complete environment: only the object store's settings. */
  readonly env: Readonly<Record<string, string>>;
  /** The folder for files that clients are reading. */
  readonly scratchDir: string;
}

export interface QueryRunner extends Pick<LakeQueries, 'ask' | 'file'> {
  /** Runs a command without options, and returns its JSON output. */
  document(command: string): Promise<unknown>;
}

/** Returns functions that run `ledger-mirror` in separate processes. */
export function openQueryRunner({
  command: [program, ...first],
  processes,
  env,
  scratchDir,
}: QueryRunnerOptions): QueryRunner {
  let running = 0;
  let files = 0;
  const begin = (): void => {
    if (running >= AT_ONCE_MAX)
      throw new StatusError(
        'unavailable',
        'the lake is busy with other queries; try again in a moment',
      );
    running += 1;
  };
  /** Starts a process that writes the result to its stdout. */
  const startFile = (
    question: LakeQuestion,
    format: string,
    signal: AbortSignal,
  ) => {
    begin();
    const args = [...first, ...queryArgs(question, format)];
    const child = spawn(program, args, {
      env: { ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      signal,
      timeout: ENDED_AFTER_MS,
    });
    child.once('close', () => {
      running -= 1;
    });
    const ended = untilEnded(child);
    // A caller that stops reading early never awaits `ended`; this keeps its rejection
    // from being unhandled.
    ended.catch(() => undefined);
    return { child, stdout: child.stdout, ended };
  };
  return {
    document: async (command) => {
      const args = [command, '--json', '--quiet'];
      const { output } = await replyOf(processes.run({ args }, undefined));
      return JSON.parse(output);
    },
    ask: async (question, signal) => {
      begin();
      try {
        const startedMs = performance.now();
        const request = {
          args: queryArgs(question, 'ndjson'),
          limits: { lines: ROWS_MAX, characters: ANSWER_CHARACTERS_MAX },
        };
        const { output, isCut } = await replyOf(processes.run(request, signal));
        const rows = output
          .split('\n')
          .filter((line) => line !== '')
          .map((line) => JSON.parse(line) as PlainRow);
        const tookMs = Math.round(performance.now() - startedMs);
        return { rows, isCut, tookMs };
      } finally {
        running -= 1;
      }
    },
    file: async (question, format, signal) => {
      if (files >= FILES_MAX)
        throw new StatusError(
          'unavailable',
          'too many results are being downloaded; try again in a moment',
        );
      files += 1;
      try {
        const { child, stdout, ended } = startFile(question, format, signal);
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

/** Returns the arguments of `ledger-mirror` that answer the question. */
function queryArgs(question: LakeQuestion, format: string): string[] {
  const [asked, options] =
    'sql' in question ? [question.sql] : [question.question, question.options];
  const given = Object.entries(options ?? {}).map(
    ([name, value]) => `--${name}=${value}`,
  );
  const bounds = [
    `--format=${format}`,
    `--timeout=${TIMEOUT_SECONDS}`,
    '--quiet',
  ];
  return ['query', ...given, ...bounds, '--', asked];
}

/** @throws StatusError if the command failed */
async function replyOf(running: Promise<CommandReply>): Promise<CommandReply> {
  const reply = await running.catch((error: unknown) => {
    throw error instanceof CommandEndedError ? refusal(error.errors) : error;
  });
  if (reply.code !== 0 && !reply.isCut) throw refusal(reply.errors);
  return reply;
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
  if (code !== 0) throw refusal(said);
}

/** @param said what the command wrote to stderr */
function refusal(said: string): StatusError {
  // The page has fields instead of command-line options, so remove the dashes.
  const message = said.trim().replaceAll(/^ledger-mirror: (?:--)?/gm, '');
  return new StatusError(
    'invalidArgument',
    message || 'the statement was ended',
  );
}
