/**
 * Sends an answer: whole or in pieces, compressed where the client takes it, no faster than the client
 * reads, and with whatever goes wrong with it on the way.
 */
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { constants, createGzip } from 'node:zlib';
import type { Misbehaviour } from './faults.ts';

/** One request with its response. `signal` aborts when the client goes away. */
export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly misbehaviour: Misbehaviour;
  readonly signal: AbortSignal;
}

/** Several values of one name become several lines. */
export type Headers = readonly (readonly [string, string | readonly string[]])[];

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  /** A text goes with its length, pieces as they come. */
  readonly body: string | Iterable<Buffer>;
}

export async function sendAnswer(
  { request, response, misbehaviour, signal }: Exchange,
  { status, headers, body }: Answer,
): Promise<void> {
  response.statusCode = status;
  for (const [name, value] of headers) response.setHeader(name, value);
  // The service looks for the word only, so `gzip;q=0` compresses too.
  const isPacked = /gzip/i.test(request.headers['accept-encoding'] ?? '');
  const gzip = isPacked ? createGzip({ level: constants.Z_BEST_SPEED }) : undefined;
  if (gzip !== undefined) {
    response.setHeader('Content-Encoding', 'gzip');
    gzip.pipe(response);
    signal.addEventListener('abort', () => gzip.destroy(), { once: true });
  } else if (typeof body === 'string') response.setHeader('Content-Length', Buffer.byteLength(body));
  const out = gzip ?? response;

  const { cutAfterBytes = Infinity, stallAfterBytes = Infinity } = misbehaviour;
  let leftBytes = Math.min(cutAfterBytes, stallAfterBytes);
  for (const piece of typeof body === 'string' ? [Buffer.from(body)] : body) {
    const sent = piece.subarray(0, leftBytes);
    leftBytes -= sent.length;
    if (!out.write(sent)) await once(out, 'drain', { signal });
    if (leftBytes > 0) continue;
    // What was written reaches the client; then the connection breaks, or falls silent.
    if (gzip !== undefined) await new Promise<void>((resolve) => gzip.flush(resolve));
    await new Promise<void>((resolve) => response.write(Buffer.alloc(0), () => resolve()));
    if (cutAfterBytes !== Infinity) response.destroy();
    else if (!signal.aborted) await once(signal, 'abort');
    return;
  }
  const finished = once(response, 'finish', { signal });
  out.end();
  await finished;
}
