/**
 * Server-sent events: one JSON value an event, with a heartbeat so that a dead connection
 * is noticed. Beside them, what bounds how many answers are open at the same time.
 */
import { PassThrough, pipeline } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyReply } from 'fastify';
import { StatusError } from './status-error.ts';

const HEARTBEAT_MS = 15_000;
/** A browser connects again by itself; without an end, dead streams would pile up. */
const STREAM_MS_MAX = 60 * 60 * 1_000;
const STREAMS_MAX = 64;

/** Returns a signal that aborts once the client is gone or has its whole answer. */
export function goneSignal(reply: FastifyReply): AbortSignal {
  const gone = new AbortController();
  if (reply.raw.destroyed) gone.abort();
  else reply.raw.once('close', () => gone.abort());
  return gone.signal;
}

/** Takes a place for an answer. @returns false if all are taken or the client is gone */
export type TakePlace = (reply: FastifyReply) => boolean;

/**
 * Limits how many answers may be open at the same time; each gives its place back at its
 * end.
 */
export function limitOpen(max: number): TakePlace {
  let open = 0;
  return (reply) => {
    // A connection that is closed already emits no `close` again: its place would be
    // lost.
    if (reply.raw.destroyed || open >= max) return false;
    open += 1;
    // Not `finish`: a client that leaves its last bytes unread still has its answer.
    reply.raw.once('close', () => {
      open -= 1;
    });
    return true;
  };
}

/** How a value is followed. */
export interface FollowOptions<Value> {
  /** Time between two readings. */
  readonly everyMs: number;
  /** Two values of the same text are not a change. JSON if absent. */
  readonly textOf?: (value: Value) => string;
  /** The value is sent again after this time, though nothing has changed. */
  readonly silentMsMax?: number;
  /** Whether nothing follows this value. */
  readonly isLast?: (value: Value) => boolean;
}

/**
 * Yields what `read` returns now, then each change, until the last value, the signal's
 * abort, or undefined.
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

/** Counts the open streams of this process. */
const takeStream = limitOpen(STREAMS_MAX);

/**
 * Sends what `read` returns now, then each change, until the client is gone.
 * @throws StatusError 429 if too many streams are open; what the first `read` throws
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
  // The first value is read before the stream is open: its failure still has a status.
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

/** Ends with an `end` event if the values end; without one, the client connects again. */
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
