/**
 * Logs: one JSON object a line on stderr, a constant message with values as fields. Every value passes
 * through `toJson` first, so that no secret, no unprintable bigint and no endless error can get out.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { pino } from 'pino';
import { type JsonRules, convertToJson } from '../json/json-value.ts';
import { HIDDEN, hideKnownSecrets, hideSecrets } from './secret-masking.ts';

/** `log.info({ runId, rows }, 'Page committed')`: the message is constant, the fields carry the values. */
type LogMethod = (
  ...line:
    | [message: string]
    | [fields: Readonly<Record<string, unknown>>, message: string]
) => void;

/** What everyone is handed to log with. An error goes into the field `err`. */
export type Log = Readonly<Record<Level, LogMethod>>;

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error'] as const;
type Level = (typeof LEVELS)[number];
export type LogLevel = Level | 'silent';

/** Which run the executing code works for: log lines carry its id without being told. */
const runScope = new AsyncLocalStorage<string>();

/** Whatever `work` starts belongs to the run. */
export function inRun<Result>(
  runId: string,
  work: () => Promise<Result>,
): Promise<Result> {
  return runScope.run(runId, work);
}

const SECRET_NAME =
  /(?:authorization|cookie|password|passwd|secret|(?<!page)token|api[-_]?key|access[-_]?key)$/i;

const TEXT_MAX = 4_000;

/** Secrets are hidden, and no value fills the log. */
const LOGGED: JsonRules = {
  change: (text) => hideSecrets(shorten(text)),
  depthMax: 8,
  itemsMax: 100,
  hide: (name) => (SECRET_NAME.test(name) ? HIDDEN : undefined),
  error: describeError,
};

/**
 * @param destination where lines go, each with its line end; default: stderr, written before the call returns
 * @returns a log whose lines are JSON objects with level, time, pid, msg and the given fields
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
      // `describeError` has dealt with errors already; pino's own serializer would undo it.
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

/** Says everything to both. */
export function teeLog(one: Log, other: Log): Log {
  const both = LEVELS.map((level): [Level, LogMethod] => {
    return [level, (...line) => [one, other].forEach((log) => log[level](...line))];
  });
  return Object.fromEntries(both) as Record<Level, LogMethod>;
}

/** Code, meta and the chain of causes; the stack only of the outermost error. */
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
