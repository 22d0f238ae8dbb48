/**
 * Answers questions to the lake by `ledger-mirror query` in a process of its own: a
 * statement can exhaust or crash that process, never the API. Statements at once, their
 * time and their answers are bounded.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { text as readText } from 'node:stream/consumers';
import { z } from 'zod';
import type { ReadyQuestion } from '../../lake/query/questions.ts';
import type { PlainRow } from '../../postgres/rows.ts';
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
        party: OPTION,
        asset: OPTION,
      })
      .optional(),
  }),
]);
export type LakeQuestion = z.infer<typeof QUESTION>;

/** As what a result is downloaded. */
export const FILE = z.strictObject({ format: z.enum(['csv', 'parquet']) });
export const FILE_TYPES = {
  csv: 'text/csv; charset=utf-8',
  parquet: 'application/vnd.apache.parquet',
};

/** Rows as JSON has them; amounts are text. */
export interface LakeAnswer {
  readonly rows: readonly PlainRow[];
  /** There are more rows than are shown. */
  readonly isCut: boolean;
  readonly tookMs: number;
}

export interface LakeQueries {
  /** What tables there are, with their columns, and how to read each from elsewhere. */
  tables(): Promise<readonly object[]>;
  readonly questions: readonly Pick<
    ReadyQuestion,
    'name' | 'title' | 'parameters'
  >[];
  /**
   * This and `file` throw a StatusError with what was wrong, or where too many are asked
   * at once.
   */
  ask(question: LakeQuestion, signal: AbortSignal): Promise<LakeAnswer>;
  /** The stream fails where the statement does after its first bytes. */
  file(
    question: LakeQuestion,
    format: keyof typeof FILE_TYPES,
    signal: AbortSignal,
  ): Promise<Readable>;
}

const AT_ONCE_MAX = 2;
const TIMEOUT_SECONDS = 60;
const ROWS_MAX = 5_000;
const ANSWER_CHARACTERS_MAX = 8_000_000;
const SAID_CHARACTERS_MAX = 4_000;

/**
 * Runs `ledger-mirror query`; `document` is what a command without options says of itself
 * as JSON.
 * @param command the program and its first arguments: what runs `ledger-mirror`
 * @param env the whole environment: the object store's settings and nothing else
 */
export function openQueryRunner(
  [program, ...first]: readonly [string, ...string[]],
  env: Readonly<Record<string, string>>,
): Pick<LakeQueries, 'ask' | 'file'> & {
  document(command: string): Promise<unknown>;
} {
  let running = 0;
  const run = (args: readonly string[], signal: AbortSignal | undefined) => {
    const child = spawn(program, [...first, ...args], {
      env: { ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      signal,
      timeout: (TIMEOUT_SECONDS + 15) * 1_000,
    });
    const ended = untilEnded(child);
    // Who stops reading before the end does not ask how it ended.
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
        'the lake answers others right now; try again in a moment',
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
      // Where it was ended within a line, it says so here, and nothing is read of that
      // line.
      else await ended;
      const rows = lines.map((line) => JSON.parse(line) as PlainRow);
      return { rows, isCut, tookMs: Math.round(performance.now() - startedMs) };
    },
    file: async (question, format, signal) => {
      const { stdout, ended } = query(question, format, signal);
      // Until the first bytes, a failure can still be told by the status.
      await Promise.race([once(stdout, 'readable'), ended]);
      ended.catch((error: Error) => stdout.destroy(error));
      return stdout;
    },
  };
}

/** @throws StatusError with what it said on stderr where it failed */
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
  // The page has fields where the command line has options.
  const message = said.trim().replaceAll(/^ledger-mirror: (?:--)?/gm, '');
  if (code !== 0)
    throw new StatusError(
      'invalidArgument',
      message || 'the statement was ended',
    );
}
