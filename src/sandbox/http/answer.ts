/**
 * Sends an answer: whole or in pieces, compressed where the client takes it, no faster than the client
 * reads, and with whatever goes wrong with it on the way.
 */
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { constants, createGzip, type Gzip } from 'node:zlib';
import type { Misbehaviour } from './faults.ts';

/** One request with its response. `signal` aborts when the client goes away. */
export interface Exchange {
  request: IncomingMessage;
  response: ServerResponse;
  misbehaviour: Misbehaviour;
  signal: AbortSignal;
}

/** Status and headers; several values of one name become several lines. */
export interface AnswerHead {
  status: number;
  headers: readonly (readonly [string, string | readonly string[]])[];
}

/** An answer of known length. */
export async function sendWhole(exchange: Exchange, head: AnswerHead, body: string): Promise<void> {
  const bytes = Buffer.from(body, 'utf8');
  const length = ['Content-Length', `${bytes.length}`] as const;
  const headers = takesGzip(exchange.request) ? head.headers : [...head.headers, length];
  const writer = new BodyWriter(exchange, { ...head, headers });
  if (await writer.write(bytes)) await writer.end();
}

/** The body of one answer, from the headers to the end. */
export class BodyWriter {
  readonly #exchange: Exchange;
  readonly #head: AnswerHead;
  #out: ServerResponse | Gzip | undefined;
  #sentBytes = 0;

  constructor(exchange: Exchange, head: AnswerHead) {
    this.#exchange = exchange;
    this.#head = head;
  }

  get begun(): boolean {
    return this.#out !== undefined;
  }

  /** Waits until there is room again. @returns false where nothing more can be sent */
  async write(piece: Buffer): Promise<boolean> {
    const { misbehaviour, signal } = this.#exchange;
    const limit = Math.min(misbehaviour.cutAfterBytes ?? Infinity, misbehaviour.stallAfterBytes ?? Infinity);
    const within = piece.subarray(0, Math.max(0, Math.min(piece.length, limit - this.#sentBytes)));
    this.#out ??= this.#begin();
    this.#sentBytes += within.length;
    if (!this.#out.write(within)) await once(this.#out, 'drain', { signal });
    if (this.#sentBytes < limit) return true;
    await this.#breakOff(this.#out);
    return false;
  }

  async end(): Promise<void> {
    const out = (this.#out ??= this.#begin());
    const finished = once(this.#exchange.response, 'finish', { signal: this.#exchange.signal });
    out.end();
    await finished;
  }

  #begin(): ServerResponse | Gzip {
    const { request, response } = this.#exchange;
    response.statusCode = this.#head.status;
    for (const [name, value] of this.#head.headers) response.setHeader(name, value);
    if (!takesGzip(request)) return response;
    response.setHeader('Content-Encoding', 'gzip');
    const gzip = createGzip({ level: constants.Z_BEST_SPEED });
    gzip.pipe(response);
    this.#exchange.signal.addEventListener('abort', () => gzip.destroy(), { once: true });
    return gzip;
  }

  /** Lets what was written reach the client, then breaks the connection or leaves it silent. */
  async #breakOff(out: ServerResponse | Gzip): Promise<void> {
    const { response, misbehaviour, signal } = this.#exchange;
    if ('flush' in out) await new Promise<void>((resolve) => out.flush(() => resolve()));
    await new Promise<void>((resolve) => response.write(Buffer.alloc(0), () => resolve()));
    if (misbehaviour.cutAfterBytes !== undefined) response.destroy();
    else if (!signal.aborted) await once(signal, 'abort');
  }
}

/** The service looks for the word only, so `gzip;q=0` compresses too. */
function takesGzip(request: IncomingMessage): boolean {
  return /gzip/i.test(request.headers['accept-encoding'] ?? '');
}
