/** A server on a real socket that answers as a test says, byte for byte where need be. */
import { once } from 'node:events';
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import {
  createServer as createTcpServer,
  type Server as TcpServer,
  type Socket,
} from 'node:net';
import { onTestFinished } from 'vitest';

export type Handler = (
  request: IncomingMessage,
  response: ServerResponse,
  nth: number,
) => void;

export interface WireServer {
  readonly url: URL;
  readonly port: number;
  /** Targets of the requests so far, with their query. */
  readonly asked: string[];
}

/** Stops with the test. `nth` counts requests from 1. */
export async function serve(handler: Handler): Promise<WireServer> {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(request.url ?? '');
    handler(request, response, asked.length);
  });
  return { ...(await listening(server)), asked };
}

/** Speaks below HTTP: `handler` gets the socket once the request's head has come. */
export async function serveBytes(
  handler: (socket: Socket) => void,
): Promise<WireServer> {
  const sockets = new Set<Socket>();
  const asked: string[] = [];
  const server = createTcpServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.once('data', (head) => {
      asked.push(head.toString('latin1').split(' ')[1] ?? '');
      handler(socket);
    });
  });
  onTestFinished(() => sockets.forEach((socket) => socket.destroy()));
  return { ...(await listening(server)), asked };
}

async function listening(
  server: Server | TcpServer,
): Promise<{ url: URL; port: number }> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    if ('closeAllConnections' in server) server.closeAllConnections();
  });
  const address = server.address();
  const port =
    typeof address === 'object' && address !== null ? address.port : 0;
  return { url: new URL(`http://127.0.0.1:${port}`), port };
}

/** A page as the service sends it. */
export function pageJson(
  list: 'parties' | 'checkpoints',
  nodes: readonly object[],
  info: object = {},
): string {
  const edges = nodes.map((node, index) => ({ node, cursor: `c${index}==` }));
  const pageInfo = {
    hasNextPage: false,
    hasPreviousPage: false,
    startCursor: edges.at(0)?.cursor ?? '',
    endCursor: edges.at(-1)?.cursor ?? '',
    ...info,
  };
  return JSON.stringify({ [list]: { edges, pageInfo } });
}

export function send(
  response: ServerResponse,
  status: number,
  body: string,
  headers: Record<string, string> = {},
): void {
  response
    .writeHead(status, { 'content-type': 'application/json', ...headers })
    .end(body);
}

/** `{code, message, details}` as the lists send it. */
export function errorJson(
  code: number,
  message: string,
  detailCode?: number,
): string {
  const details =
    detailCode === undefined
      ? []
      : [{ '@type': 'x', code: detailCode, message: 'reason', inner: '' }];
  return JSON.stringify({ code, message, details });
}
