/**
 * Answers the console's questions: runs commands that another process of this program
 * sends, one after another, and returns what each wrote. A process that stays spares the
 * next question the half second in which Node loads the program and DuckDB.
 *
 * A command shares nothing with the one before: it reads the settings anew, and opens an
 * object store and an engine of its own, which it closes.
 */
import { Writable } from 'node:stream';
import type {
  CommandReply,
  CommandRequest,
} from './api/console/command-processes.ts';
import { unlessBrokenPipe } from './cli/output/destination.ts';
import { runCli } from './cli/program.ts';
import { processEnvironment } from './config/environment.ts';

const ERRORS_CHARACTERS_MAX = 4_000;
/** How long a command may take to clean up after the process was told to end. */
const END_MAX_MS = 3_000;

// The lake's copies are readable by this user only, whatever umask the shell sets.
process.umask(0o077);

const given = processEnvironment();
const stop = new AbortController();
let isBusy = false;

process.on('message', (request: CommandRequest) => void answer(request));
// The program that asks may have been killed, and then nobody else ends this process.
for (const event of ['SIGTERM', 'SIGINT', 'disconnect'] as const)
  process.once(event, endProcess);

// The first question needs these. A process that was started ahead has loaded them by
// then. If one cannot be loaded, the question reports it.
await Promise.allSettled([
  import('./cli/commands/query.ts'),
  import('./cli/output/progress.ts'),
  import('./network/trust.ts'),
  import('@duckdb/node-api'),
]);

async function answer({ args, limits }: CommandRequest): Promise<void> {
  isBusy = true;
  const output = collect(limits);
  const errors = collect();
  const { env } = given;
  const code = await runCli({
    argv: args,
    ...given,
    setVariable: (name, value) => {
      env[name] ??= value;
    },
    stdout: output.stream,
    stderr: errors.stream,
    signal: stop.signal,
  });
  if (stop.signal.aborted) process.exit();
  isBusy = false;
  const reply: CommandReply = {
    code,
    ...output.result(),
    errors: errors.result().output.slice(0, ERRORS_CHARACTERS_MAX),
    residentBytes: process.memoryUsage.rss(),
  };
  process.send?.(reply);
}

/** Ends the process, after its command has removed its files if there is one. */
function endProcess(): void {
  if (!isBusy) process.exit();
  stop.abort(new DOMException('told to stop', 'AbortError'));
  setTimeout(() => process.exit(), END_MAX_MS).unref();
}

/** The error that Node throws when the reader of a pipe has left. */
class ReaderGoneError extends Error {
  readonly code = 'EPIPE';
}

/**
 * Collects what is written to a stream, up to the limits. A command that writes more is
 * stopped as if the reader of a pipe had left.
 */
function collect(limits?: CommandRequest['limits']): {
  readonly stream: Writable;
  readonly result: () => { readonly output: string; readonly isCut: boolean };
} {
  const { lines: linesMax = Infinity, characters: charactersMax = Infinity } =
    limits ?? {};
  let text = '';
  let lines = 0;
  let isCut = false;
  const stream = new Writable({
    decodeStrings: false,
    write: (chunk: string | Buffer, _, done) => {
      const written = chunk.toString();
      text += written;
      lines += written.split('\n').length - 1;
      isCut = lines > linesMax || text.length > charactersMax;
      done(isCut ? new ReaderGoneError() : undefined);
    },
  });
  stream.on('error', unlessBrokenPipe);
  const result = () => ({
    output: isCut ? wholeLines(text, linesMax, charactersMax) : text,
    isCut,
  });
  return { stream, result };
}

/** Returns the lines from the beginning of a text that fit within the limits. */
function wholeLines(
  text: string,
  linesMax: number,
  charactersMax: number,
): string {
  let end = 0;
  for (let lines = 0; lines < linesMax; lines += 1) {
    const next = text.indexOf('\n', end) + 1;
    if (next === 0 || next > charactersMax) break;
    end = next;
  }
  return text.slice(0, end);
}
