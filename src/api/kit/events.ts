/** Server-sent events: one JSON value an event, with a heartbeat so that a dead line is noticed. */
import { PassThrough, pipeline } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyReply } from 'fastify';
import { StatusError } from './status-error.ts';

const HEARTBEAT_MS = 15_000;
/** A browser connects again by itself; what hangs for ever does not pile up. */
const STREAM_MS_MAX = 60 * 60 * 1_000;
const STREAMS_MAX = 64;

/** Aborts once the client is gone, or has its whole answer: what is still read for it is let go. */
export function goneSignal(reply: FastifyReply): AbortSignal {
  const gone = new AbortController();
  if (reply.raw.destroyed) gone.abort();
  else reply.raw.once('close', () => gone.abort());
  return gone.signal;
}

/** @returns takes one of so many places for an answer until it is over; false where all are taken or its client is gone */
export function limitOpen(max: number): (reply: FastifyReply) => boolean {
  let open = 0;
  return (reply) => {
    // What is closed already never says so again: its place would not be given back.
    if (reply.raw.destroyed || open >= max) return false;
    open += 1;
    // A client that leaves its last bytes unread still has its answer.
    reply.raw.once('close', () => (open -= 1));
    return true;
  };
}

interface Following<Told> {
  readonly everyMs: number;
  /** What is no longer a change. */
  readonly textOf?: (told: Told) => string;
  /** Told again after so long, though nothing has changed. */
  readonly silentMsMax?: number;
  readonly isLast?: (told: Told) => boolean;
}

/** What `read` gives now, then each change, until it was the last, the signal aborts or there is none. */
export async function* followChanges<Told>(
  read: () => Promise<Told | undefined>,
  {
    everyMs,
    textOf = JSON.stringify,
    silentMsMax = Infinity,
    isLast = () => false,
  }: Following<Told>,
  signal: AbortSignal,
): AsyncGenerator<Told> {
  let last = { text: '', atMs: 0 };
  while (!signal.aborted) {
    const now = await read();
    if (now === undefined) return;
    const text = textOf(now);
    const atMs = performance.now();
    if (text !== last.text || atMs - last.atMs > silentMsMax) {
      yield now;
      last = { text, atMs };
    }
    if (isLast(now)) return;
    await sleep(everyMs, undefined, { signal }).catch(() => undefined);
  }
}

/** The open streams of this process. */
const mayOpen = limitOpen(STREAMS_MAX);

/**
 * Sends what `read` gives now, then each change, until the client is gone.
 * @throws StatusError 429 where too many streams are open; what `read` throws at first
 */
export async function followEvents<Told>(
  reply: FastifyReply,
  read: () => Promise<Told | undefined>,
  following: Following<Told>,
): Promise<FastifyReply> {
  const signal = AbortSignal.any([goneSignal(reply), AbortSignal.timeout(STREAM_MS_MAX)]);
  const values = followChanges(read, following, signal);
  // What is wrong is told before the stream is open, with a status that a client can read.
  const first = await values.next();
  if (!mayOpen(reply))
    throw new StatusError(
      'resourceExhausted',
      `more than ${STREAMS_MAX} event streams are open`,
    );
  const body = new PassThrough();
  const heartbeat = setInterval(
    () => body.writable && body.write(': alive\n\n'),
    HEARTBEAT_MS,
  );
  reply.raw.once('close', () => clearInterval(heartbeat));
  pipeline(eventTexts(first, values, signal), body, () => undefined);
  return reply
    .headers({ 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' })
    .send(body);
}

/** Ends with an `end` event where the values do; without one the client is to come again. */
async function* eventTexts(
  first: IteratorResult<unknown>,
  rest: AsyncIterator<unknown>,
  signal: AbortSignal,
) {
  yield 'retry: 2000\n\n';
  try {
    for (let next = first; next.done !== true; next = await rest.next())
      yield `data: ${JSON.stringify(next.value)}\n\n`;
  } catch (error) {
    if (!signal.aborted) throw error;
  }
  if (!signal.aborted) yield 'event: end\ndata: {}\n\n';
}
