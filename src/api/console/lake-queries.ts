/**
 * Answers questions to the lake by `ledger-mirror query` in a process of its own: a statement can exhaust or crash that
 * process, never the API. Statements at once, their time and their answers are bounded.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { text as readText } from 'node:stream/consumers';
import { z } from 'zod';
import type { ReadyQuestion } from '../../lake/query/questions.ts';
import { StatusError } from '../http/status-error.ts';

const OPTION = z.string().min(1).max(200).optional();

/** SQL, or a ready question with its options. */
export const QUESTION = z.union([
  z.strictObject({ sql: z.string().min(1).max(12_000) }),
  z.strictObject({
    question: z.string().regex(/^[a-z][a-z-]{1,40}$/),
    options: z.strictObject({ since: OPTION, until: OPTION, party: OPTION, asset: OPTION }).optional(),
  }),
]);
export type LakeQuestion = z.infer<typeof QUESTION>;

/** As what a result is downloaded. */
export const FILE = z.strictObject({ format: z.enum(['csv', 'parquet']) });
export type FileFormat = z.infer<typeof FILE>['format'];

/** Rows as JSON has them; amounts are text. */
export interface LakeAnswer {
  readonly rows: readonly Readonly<Record<string, unknown>>[];
  /** There are more rows than are shown. */
  readonly isCut: boolean;
  readonly tookMs: number;
}

export interface LakeTable {
  readonly name: string;
  readonly comment: string;
  readonly version: number;
  readonly rows: string;
  readonly bytes: string;
  readonly committedAt: string;
  readonly columns: readonly { readonly name: string; readonly type: string; readonly comment: string }[];
  /** How to read the table from elsewhere, a line for each engine. */
  readonly access: readonly { readonly engine: string; readonly line: string }[];
}

/** `ask` and `file` throw a StatusError with what was wrong, or where too many are asked at once. */
export interface LakeQueries extends Pick<QueryRunner, 'ask' | 'file'> {
  tables(): Promise<readonly LakeTable[]>;
  readonly questions: readonly Pick<ReadyQuestion, 'name' | 'title' | 'parameters'>[];
}

export interface QueryProcess {
  /** The program and its first arguments: what runs `ledger-mirror`. */
  readonly command: readonly [string, ...string[]];
  /** The whole environment: the object store's settings and nothing else. */
  readonly env: Readonly<Record<string, string>>;
}

const AT_ONCE_MAX = 2;
const TIMEOUT_SECONDS = 60;
const ROWS_MAX = 5_000;
const ANSWER_CHARACTERS_MAX = 8_000_000;
const SAID_CHARACTERS_MAX = 4_000;
const ENDED = 'the statement was ended';

type Child = ChildProcessByStdio<null, Readable, Readable>;

/** Runs `ledger-mirror query`. */
export class QueryRunner {
  readonly #process: QueryProcess;
  #running = 0;

  constructor(process: QueryProcess) {
    this.#process = process;
  }

  /** What a command without options says of itself as JSON. */
  async document(command: string): Promise<unknown> {
    const child = this.#spawn([command, '--json', '--quiet'], undefined);
    const [text, said] = await Promise.all([readText(child.stdout), untilEnded(child)]);
    if (said !== undefined) throw refused(said);
    return JSON.parse(text);
  }

  async ask(question: LakeQuestion, signal: AbortSignal): Promise<LakeAnswer> {
    const startedMs = performance.now();
    const child = this.#start(question, 'ndjson', signal);
    const ended = untilEnded(child);
    const rows: Record<string, unknown>[] = [];
    let characters = 0;
    let [isCut, isBroken] = [false, false];
    for await (const line of createInterface({ input: child.stdout, crlfDelay: Infinity })) {
      characters += line.length;
      isCut = rows.length >= ROWS_MAX || characters > ANSWER_CHARACTERS_MAX;
      const row = isCut ? undefined : parseRow(line);
      isBroken = row === undefined;
      if (row === undefined) break;
      rows.push(row);
    }
    if (isCut) child.kill();
    const said = await ended;
    if (!isCut && (said !== undefined || isBroken)) throw refused(said ?? ENDED);
    return { rows, isCut, tookMs: Math.round(performance.now() - startedMs) };
  }

  /** The stream fails where the statement does after its first bytes. */
  async file(question: LakeQuestion, format: FileFormat, signal: AbortSignal): Promise<Readable> {
    const child = this.#start(question, format, signal);
    const ended = untilEnded(child);
    // Until the first bytes, a failure can still be told by the status.
    const began = new Promise<void>((resolve) => {
      child.stdout.once('readable', resolve);
    });
    const said = await Promise.race([began, ended]);
    if (said !== undefined) throw refused(said);
    void endWith(child.stdout, ended);
    return child.stdout;
  }

  #start(question: LakeQuestion, format: string, signal: AbortSignal): Child {
    if (this.#running >= AT_ONCE_MAX) {
      throw StatusError.ofGateway('unavailable', 'the lake answers others right now; try again in a moment');
    }
    this.#running += 1;
    const options = 'question' in question ? Object.entries(question.options ?? {}) : [];
    const args = [
      'query',
      ...options.map(([name, value]) => `--${name}=${value}`),
      `--format=${format}`,
      `--timeout=${TIMEOUT_SECONDS}`,
      '--quiet',
      '--',
      'question' in question ? question.question : question.sql,
    ];
    const child = this.#spawn(args, signal);
    child.once('close', () => {
      this.#running -= 1;
    });
    return child;
  }

  #spawn(args: readonly string[], signal: AbortSignal | undefined): Child {
    const [program, ...first] = this.#process.command;
    return spawn(program, [...first, ...args], {
      env: { ...this.#process.env },
      stdio: ['ignore', 'pipe', 'pipe'],
      signal,
      timeout: (TIMEOUT_SECONDS + 15) * 1_000,
    });
  }
}

/** @returns undefined where the process was ended within the line */
function parseRow(line: string): Record<string, unknown> | undefined {
  try {
    return JSON.parse(line) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}

/** A statement that fails after its first bytes breaks the download off. */
async function endWith(output: Readable, ended: Promise<string | undefined>): Promise<void> {
  const failure = await ended;
  if (failure !== undefined) output.destroy(new Error(failure));
}

/** @returns what it said on stderr where it failed */
function untilEnded(child: Child): Promise<string | undefined> {
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(0, SAID_CHARACTERS_MAX);
  });
  return new Promise((resolve) => {
    child.once('error', (error) => {
      said ||= error.message;
    });
    child.once('close', (code) => {
      resolve(code === 0 ? undefined : said.trim() || ENDED);
    });
  });
}

/** The page has fields where the command line has options. */
function refused(said: string): StatusError {
  return StatusError.ofGateway('invalidArgument', said.replaceAll(/^ledger-mirror: (?:--)?/gm, ''));
}
