/**
 * A proxy in front of a store that speaks HTTP. It can lose answers, flip bits in
 * transit, refuse calls as S3 does, and serve TLS.
 */
import { once } from 'node:events';
import {
  createServer,
  type IncomingMessage,
  request,
  type Server,
  type ServerResponse,
} from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';

/** A refusal that the proxy answers in place of the store. */
export interface Refusal {
  readonly status: number;
  /** S3's own code for it. */
  readonly code: string;
}

/**
 * What goes wrong with a call: its answer is lost or cut short, one bit of the request
 * flips, or the call is refused and never reaches the store.
 */
export type Mishap = 'lose' | 'cut' | 'flip' | Refusal | undefined;

export interface Passing {
  readonly method: string;
  readonly path: string;
}

export class StoreProxy implements AsyncDisposable {
  /** Decides what goes wrong with each call; by default nothing does. */
  judge: (call: Passing) => Mishap = () => undefined;
  readonly #server: Server;
  readonly #isTls: boolean;

  private constructor(
    target: URL,
    tls: { key: string; cert: string } | undefined,
  ) {
    const serve = (asked: IncomingMessage, answer: ServerResponse): void => {
      void this.#pass(target, asked, answer).catch(() =>
        asked.socket.destroy(),
      );
    };
    this.#isTls = tls !== undefined;
    this.#server =
      tls === undefined ? createServer(serve) : createTlsServer(tls, serve);
  }

  static async before(
    endpoint: string,
    tls?: { key: string; cert: string },
  ): Promise<StoreProxy> {
    const proxy = new StoreProxy(new URL(endpoint), tls);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get endpoint(): string {
    const { port } = this.#server.address() as AddressInfo;
    return `${this.#isTls ? 'https' : 'http'}://127.0.0.1:${port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  async #pass(
    target: URL,
    asked: IncomingMessage,
    answer: ServerResponse,
  ): Promise<void> {
    const { method = 'GET', url: path = '/' } = asked;
    const body = await buffer(asked);
    const mishap = this.judge({ method, path });
    if (typeof mishap === 'object') {
      refuse(answer, mishap, method);
      return;
    }
    if (mishap === 'flip' && body.length > 0)
      body.writeUInt8(body.readUInt8(body.length >> 1) ^ 4, body.length >> 1);
    const { 'transfer-encoding': _, expect: __, ...headers } = asked.headers;
    const sent = request({
      agent: false,
      host: target.hostname,
      port: target.port,
      method,
      path,
      headers: { ...headers, 'content-length': body.length },
    });
    // An error before the answer makes the call below fail. An error after the answer
    // does not matter; Swift, for example, causes one by sending a body after the answer
    // to a HEAD.
    sent.on('error', () => undefined);
    sent.end(body);
    const [answered] = (await once(sent, 'response')) as [IncomingMessage];
    const content = await buffer(answered);
    if (mishap === 'lose') {
      asked.socket.destroy();
      return;
    }
    answer.writeHead(answered.statusCode ?? 500, answered.headers);
    if (mishap === 'cut')
      answer.write(content.subarray(0, content.length >> 1), () =>
        asked.socket.destroy(),
      );
    else answer.end(content);
  }
}

function refuse(
  answer: ServerResponse,
  { status, code }: Refusal,
  method: string,
): void {
  const body = `<Error><Code>${code}</Code><Message>${code}</Message></Error>`;
  answer.writeHead(status, {
    'content-type': 'application/xml',
    'x-amz-request-id': '1',
  });
  answer.end(method === 'HEAD' ? undefined : body);
}
