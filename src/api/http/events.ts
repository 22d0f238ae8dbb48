/** Server-sent events: one JSON value an event, with a heartbeat so that a dead line is noticed. */
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyReply } from 'fastify';
import { StatusError } from './status-error.ts';

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
    const gone = new AbortController();
    reply.raw.once('close', () => {
      this.#open -= 1;
      gone.abort();
    });
    const signal = AbortSignal.any([gone.signal, AbortSignal.timeout(STREAM_MS_MAX)]);
    return reply
      .headers({ 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' })
      .send(Readable.from(eventTexts(open(signal), signal)));
  }
}

/** Ends with an `end` event where the values do; without one the client is to come again. */
async function* eventTexts(values: AsyncIterable<unknown>, signal: AbortSignal): AsyncGenerator<string> {
  const iterator = values[Symbol.asyncIterator]();
  try {
    yield 'retry: 2000\n\n';
    let next = iterator.next();
    for (;;) {
      const step = await orQuiet(next);
      if (step === 'quiet') {
        yield ': alive\n\n';
        continue;
      }
      if (step.done === true) break;
      yield `data: ${JSON.stringify(step.value)}\n\n`;
      next = iterator.next();
    }
    if (!signal.aborted) yield 'event: end\ndata: {}\n\n';
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    await iterator.return?.();
  }
}

async function orQuiet<Value>(next: Promise<Value>): Promise<Value | 'quiet'> {
  const answered = new AbortController();
  const quiet = sleep(HEARTBEAT_MS, 'quiet' as const, { signal: answered.signal }).catch(
    () => 'quiet' as const,
  );
  try {
    return await Promise.race([next, quiet]);
  } finally {
    answered.abort();
  }
}
