/** Stands between a mirror and its source: counts what is asked, and may change answers. */
import {
  createServer,
  type IncomingMessage,
  request as send,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';

export interface SourceInBetween extends AsyncDisposable {
  readonly url: string;
  /** Paths with queries, in the order in which they were asked. */
  readonly asked: string[];
  /** Changes the body of an answer; undefined: as it is. */
  change: ((path: string, body: Buffer) => Buffer | undefined) | undefined;
}

export async function standBetween(source: string): Promise<SourceInBetween> {
  const server = createServer((request, response) => {
    const path = request.url ?? '';
    between.asked.push(path);
    const { 'accept-encoding': _, ...headers } = request.headers;
    const target = new URL(path, source);
    const asked = send(
      target,
      { headers, method: request.method },
      (answer) => {
        void passOn(path, answer, response);
      },
    );
    asked.on('error', () => response.destroy());
    asked.end();
  });
  async function passOn(
    path: string,
    answer: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const body = await buffer(answer);
    const changed = between.change?.(path, body) ?? body;
    const { 'content-length': length, ...headers } = answer.headers;
    const framing =
      length === undefined ? {} : { 'content-length': changed.length };
    response.writeHead(answer.statusCode ?? 502, { ...headers, ...framing });
    response.end(changed);
  }

  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  const between: SourceInBetween = {
    url: `http://127.0.0.1:${port}`,
    asked: [],
    change: undefined,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return between;
}
