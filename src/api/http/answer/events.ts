/** Server-sent events: one JSON value an event, with a heartbeat so that a dead line is noticed. */
import { PassThrough, pipeline } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { goneSignal } from './gone.ts';
import { StatusError } from '../status-error.ts';

const HEARTBEAT_MS = 15_000;
/** A browser connects again by itself; what hangs for ever does not pile up. */
const STREAM_MS_MAX = 60 * 60 * 1_000;
const STREAMS_MAX = 64;

/** The open streams of one server. */
export class EventStreams {
  #open = 0;

  /**
   * @param open the values to send; ends when its signal does, which is when the client is gone
   * @throws StatusError 429 where too many streams are open
   */
  send(reply: FastifyReply, open: (signal: AbortSignal) => AsyncIterable<unknown>): FastifyReply {
    if (this.#open >= STREAMS_MAX) {
      throw StatusError.ofGateway('resourceExhausted', `more than ${STREAMS_MAX} event streams are open`);
    }
    this.#open += 1;
    const signal = AbortSignal.any([goneSignal(reply), AbortSignal.timeout(STREAM_MS_MAX)]);
    const body = new PassThrough();
    const heartbeat = setInterval(() => body.writable && body.write(': alive\n\n'), HEARTBEAT_MS);
    // A client that leaves its last bytes unread still has its stream.
    reply.raw.once('close', () => {
      this.#open -= 1;
      clearInterval(heartbeat);
    });
    pipeline(eventTexts(open(signal), signal), body, () => undefined);
    return reply.headers({ 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' }).send(body);
  }
}

/** Ends with an `end` event where the values do; without one the client is to come again. */
async function* eventTexts(values: AsyncIterable<unknown>, signal: AbortSignal): AsyncGenerator<string> {
  yield 'retry: 2000\n\n';
  try {
    for await (const value of values) yield `data: ${JSON.stringify(value)}\n\n`;
  } catch (error) {
    if (!signal.aborted) throw error;
  }
  if (!signal.aborted) yield 'event: end\ndata: {}\n\n';
}
