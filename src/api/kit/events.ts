/**
 * Sends server-sent events: one JSON value per event, with a heartbeat so that dead
 * connections are detected. This module also limits the number of concurrent responses.
 */
import { PassThrough, pipeline } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyReply } from 'fastify';
import { StatusError } from './status-error.ts';

const HEARTBEAT_MS = 15_000;
/**
 * How long a stream may stay open. Browsers reconnect automatically; without a limit,
 * dead streams would accumulate.
 */
const STREAM_MS_MAX = 60 * 60 * 1_000;
const STREAMS_MAX = 64;

/**
 * Returns a signal that aborts once the client has disconnected or received the whole
 * response.
 */
export function goneSignal(reply: FastifyReply): AbortSignal {
  const gone = new AbortController();
  if (reply.raw.destroyed) gone.abort();
  else reply.raw.once('close', () => gone.abort());
  return gone.signal;
}

/**
 * Takes a slot for a response.
 * @returns false if all slots are taken or the client has disconnected
 */
export type TakePlace = (reply: FastifyReply) => boolean;

/**
 * Limits the number of concurrent responses. A response's slot is released when the
 * response ends.
 */
export function limitOpen(max: number): TakePlace {
  let open = 0;
  return (reply) => {
    // A connection that is already closed does not emit `close` again, so its slot would
    // never be released.
    if (reply.raw.destroyed || open >= max) return false;
    open += 1;
    // Use `close` and not `finish`, which fires while the client may still be reading
    // the last bytes.
    reply.raw.once('close', () => {
      open -= 1;
    });
    return true;
  };
}

/** Options for polling a value and streaming its changes. */
export interface FollowOptions<Value> {
  /** Time between two reads, in milliseconds. */
  readonly everyMs: number;
  /**
   * Returns the string by which a value is compared with the previous one: equal strings
   * mean that nothing has changed. The default is the value's JSON.
   */
  readonly textOf?: (value: Value) => string;
  /**
   * Maximum time between two events, in milliseconds; an unchanged value is then sent
   * again.
   */
  readonly silentMsMax?: number;
  /** Whether this value is the last one. */
  readonly isLast?: (value: Value) => boolean;
}

/**
 * Yields the value that `read` returns now, and then each changed value. It ends after
 * the last value, when the signal aborts, or when `read` returns undefined.
 */
export async function* followChanges<Value>(
  read: () => Promise<Value | undefined>,
  options: FollowOptions<Value>,
  signal: AbortSignal,
): AsyncGenerator<Value> {
  const { everyMs, textOf = JSON.stringify, silentMsMax = Infinity } = options;
  let lastText = '';
  let lastMs = 0;
  while (!signal.aborted) {
    const value = await read();
    if (value === undefined) return;
    const text = textOf(value);
    const nowMs = performance.now();
    if (text !== lastText || nowMs - lastMs > silentMsMax) {
      yield value;
      lastText = text;
      lastMs = nowMs;
    }
    if (options.isLast?.(value) === true) return;
    await sleep(everyMs, undefined, { signal }).catch(() => undefined);
  }
}

/** Counts the open event streams of this process. */
const takeStream = limitOpen(STREAMS_MAX);

/**
 * Sends the value that `read` returns now, and then each changed value, until the client
 * disconnects.
 * @throws StatusError 429 if too many streams are open
 * @throws whatever the first call of `read` throws
 */
export async function followEvents<Value>(
  reply: FastifyReply,
  read: () => Promise<Value | undefined>,
  options: FollowOptions<Value>,
): Promise<FastifyReply> {
  const signal = AbortSignal.any([
    goneSignal(reply),
    AbortSignal.timeout(STREAM_MS_MAX),
  ]);
  const values = followChanges(read, options, signal);
  // Read the first value before the stream opens, so that a failure can still be reported
  // by an HTTP status.
  const first = await values.next();
  if (!takeStream(reply))
    throw new StatusError(
      'resourceExhausted',
      `more than ${STREAMS_MAX} event streams are open`,
    );
  const body = new PassThrough();
  const heartbeat = setInterval(() => {
    if (body.writable) body.write(': alive\n\n');
  }, HEARTBEAT_MS);
  reply.raw.once('close', () => clearInterval(heartbeat));
  pipeline(eventTexts(first, values, signal), body, () => undefined);
  return reply
    .headers({ 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' })
    .send(body);
}

/**
 * Formats values as events. An `end` event follows the last value; a client whose stream
 * closes without this event reconnects.
 */
async function* eventTexts(
  first: IteratorResult<unknown>,
  rest: AsyncIterator<unknown>,
  signal: AbortSignal,
): AsyncGenerator<string> {
  yield 'retry: 2000\n\n';
  try {
    let next = first;
    while (next.done !== true) {
      yield `data: ${JSON.stringify(next.value)}\n\n`;
      next = await rest.next();
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
  if (!signal.aborted) yield 'event: end\ndata: {}\n\n';
}
