/**
 * Logs: one JSON object a line on stderr, a constant message with values as fields. Every value passes
 * through `plain()` first, so that no secret, no unprintable bigint and no endless error can get out.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { pino, type Logger } from 'pino';
import { HIDDEN, hideKnownSecrets, hideSecrets } from './secrets.ts';

/** `log.info({ runId, rows }, 'Page committed')`: the message is constant, the fields carry the values. */
export interface LogMethod {
  (message: string): void;
  (fields: Readonly<Record<string, unknown>>, message: string): void;
}

/** What everyone is handed to log with. An error goes into the field `err`. */
export interface Log extends Readonly<Record<Level, LogMethod>> {
  /** A log that adds these fields to every line. */
  child(fields: Readonly<Record<string, unknown>>): Log;
}

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error'] as const;
type Level = (typeof LEVELS)[number];
export type LogLevel = Level | 'silent';

/** Which run the executing code works for: log lines carry its id without being told. */
const runScope = new AsyncLocalStorage<string>();

/** Whatever `work` starts belongs to the run. */
export function inRun<Result>(runId: string, work: () => Promise<Result>): Promise<Result> {
  return runScope.run(runId, work);
}

const SECRET_NAME =
  /(?:authorization|cookie|password|passwd|secret|(?<!page)token|api[-_]?key|access[-_]?key)$/i;

const DEPTH_MAX = 8;
const ITEMS_MAX = 100;
const TEXT_MAX = 4_000;

/**
 * @param destination where lines go, each with its line end; default: stderr, written before the call returns
 * @returns a log whose lines are JSON objects with level, time, pid, msg and the given fields
 */
export function createLog(level: LogLevel, destination?: { write(line: string): void }): Log {
  const logger = pino(
    {
      level,
      base: { pid: process.pid },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }), log: plainObject },
      // `plain()` has dealt with errors already; pino's own serializer would undo it.
      serializers: { err: (value: unknown) => value },
      hooks: { streamWrite: hideKnownSecrets },
      mixin: () => {
        const runId = runScope.getStore();
        return runId === undefined ? {} : { runId };
      },
    },
    destination ?? pino.destination({ fd: 2, sync: true }),
  );
  return withPlainChildren(logger);
}

function makeLog(methodOf: (level: Level) => LogMethod, child: Log['child']): Log {
  const methods = LEVELS.map((level) => [level, methodOf(level)] as const);
  return { ...(Object.fromEntries(methods) as Record<Level, LogMethod>), child };
}

/** Says everything to both. */
export function teeLog(one: Log, other: Log): Log {
  const both = (level: Level): LogMethod =>
    function say(...line: [string] | [Readonly<Record<string, unknown>>, string]): void {
      for (const log of [one, other]) (log[level] as (...given: typeof line) => void)(...line);
    };
  return makeLog(both, (fields) => teeLog(one.child(fields), other.child(fields)));
}

/** pino applies its formatters to the fields of a call, not to those of a child. */
function withPlainChildren(logger: Logger): Log {
  const child: Log['child'] = (fields) => withPlainChildren(logger.child(plainObject(fields)));
  return makeLog((level) => logger[level].bind(logger), child);
}

/** A value that JSON can hold: bigint as text, errors as objects, secrets hidden, size bounded. */
function plain(value: unknown, depth: number): unknown {
  if (typeof value === 'string') return hideSecrets(shorten(value));
  if (typeof value === 'bigint') return value.toString();
  if (typeof value !== 'object' || value === null) return typeof value === 'function' ? undefined : value;
  if (depth >= DEPTH_MAX) return '[too deep]';
  if (value instanceof Error) return plainError(value, depth);
  if (value instanceof URL) return hideSecrets(value.href);
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'Invalid Date' : value.toISOString();
  if (value instanceof Uint8Array) return `[${value.byteLength} bytes]`;
  if (Array.isArray(value)) {
    const items = value.slice(0, ITEMS_MAX).map((item) => plain(item, depth + 1));
    return value.length > ITEMS_MAX ? [...items, `[${value.length - ITEMS_MAX} more]`] : items;
  }
  if (value instanceof Map || value instanceof Set) return plain([...value], depth);
  return plainObject(value, depth);
}

function plainObject(value: object, depth = 0): Record<string, unknown> {
  const result: Record<string, unknown> = {};
  for (const [name, item] of Object.entries(value).slice(0, ITEMS_MAX)) {
    const isSecret = SECRET_NAME.test(name) && item !== undefined;
    result[name] = isSecret ? HIDDEN : plain(item, depth + 1);
  }
  return result;
}

/** Code, meta and the chain of causes; the stack only of the outermost error. */
function plainError(error: Error, depth: number): Record<string, unknown> {
  const code = 'code' in error ? error.code : undefined;
  const meta = 'meta' in error ? error.meta : undefined;
  const aggregated = error instanceof AggregateError ? error.errors : undefined;
  const isOutermost = depth <= 1;
  return {
    type: error.name,
    message: hideSecrets(shorten(error.message)),
    ...(code === undefined ? {} : { code: plain(code, depth + 1) }),
    ...(meta === undefined ? {} : { meta: plain(meta, depth + 1) }),
    ...(error.cause === undefined ? {} : { cause: plain(error.cause, depth + 1) }),
    ...(aggregated === undefined ? {} : { errors: plain(aggregated, depth + 1) }),
    ...(isOutermost && error.stack !== undefined ? { stack: hideSecrets(shorten(error.stack)) } : {}),
  };
}

function shorten(text: string): string {
  return text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}… (${text.length} characters)` : text;
}
