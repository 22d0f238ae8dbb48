/**
 * Logs are JSON objects on stderr, one per line. Each has a constant message and carries
 * its values as fields. Every value first passes through `convertToJson`, which hides
 * secrets, serializes bigints and limits the size of errors.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { pino } from 'pino';
import { type JsonRules, convertToJson } from '../json/json-value.ts';
import {
  HIDDEN,
  hideKnownSecrets,
  hideSecrets,
} from '../secrets/secret-masking.ts';

/**
 * Logs one line, as in `log.info({ runId, rows }, 'Page committed')`: the message is
 * constant, and the fields carry the values.
 */
type LogMethod = (
  ...line:
    | [message: string]
    | [fields: Readonly<Record<string, unknown>>, message: string]
) => void;

/** The logger interface. Pass errors in the field `err`. */
export type Log = Readonly<Record<Level, LogMethod>>;

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error'] as const;
type Level = (typeof LEVELS)[number];
export type LogLevel = Level | 'silent';

/** The id of the run that the current code is working for; log lines include it. */
const runScope = new AsyncLocalStorage<string>();

/** Runs `work`, and everything it starts, in the scope of a run. */
export function inRun<Result>(
  runId: string,
  work: () => Promise<Result>,
): Promise<Result> {
  return runScope.run(runId, work);
}

const SECRET_NAME =
  /(?:authorization|cookie|password|passwd|secret|(?<!page)token|api[-_]?key|access[-_]?key)$/i;

const TEXT_MAX = 4_000;

/** Hides secrets, and limits how much one value may add to the log. */
const LOGGED: JsonRules = {
  change: (text) => hideSecrets(shorten(text)),
  depthMax: 8,
  itemsMax: 100,
  hide: (name) => (SECRET_NAME.test(name) ? HIDDEN : undefined),
  error: describeError,
};

/**
 * Creates a log whose lines are JSON objects with level, time, pid, msg and the given
 * fields.
 * @param destination receives the lines, each with a trailing line break; by default
 *   stderr, where each line is written before the call returns
 */
export function createLog(
  level: LogLevel,
  destination?: { write(line: string): void },
): Log {
  return pino(
    {
      level,
      base: { pid: process.pid },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: {
        level: (label) => ({ level: label }),
        log: (fields) => convertToJson(fields, LOGGED) as typeof fields,
      },
      // `describeError` has already converted errors; pino's own serializer would undo
      // that.
      serializers: { err: (value: unknown) => value },
      hooks: { streamWrite: hideKnownSecrets },
      mixin: () => {
        const runId = runScope.getStore();
        return runId === undefined ? {} : { runId };
      },
    },
    destination ?? pino.destination({ fd: 2, sync: true }),
  );
}

/** Returns a log that writes every line to both logs. */
export function teeLog(first: Log, second: Log): Log {
  const methods = LEVELS.map((level): [Level, LogMethod] => {
    const writeBoth: LogMethod = (...line) => {
      first[level](...line);
      second[level](...line);
    };
    return [level, writeBoth];
  });
  return Object.fromEntries(methods) as Record<Level, LogMethod>;
}

/**
 * Describes an error by its code, meta and causes. Only the outermost errors keep their
 * stack.
 */
function describeError(error: Error, depth: number): Record<string, unknown> {
  return {
    type: error.name,
    message: error.message,
    code: 'code' in error ? error.code : undefined,
    meta: 'meta' in error ? error.meta : undefined,
    cause: error.cause,
    errors: error instanceof AggregateError ? error.errors : undefined,
    stack: depth <= 1 ? error.stack : undefined,
  };
}

function shorten(text: string): string {
  return text.length > TEXT_MAX
    ? `${text.slice(0, TEXT_MAX)}… (${text.length} characters)`
    : text;
}
