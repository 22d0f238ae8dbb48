/**
 * The sandbox: serves a network over HTTP just as the query service serves a real one. It
 * is for `demo`, for tests, and for users who want to try a client without the real
 * service.
 */
import { once } from 'node:events';
import {
  createServer,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import { isIPv6, type AddressInfo } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { constants, createGzip } from 'node:zlib';
import { openNetwork, type Network } from '../network/network.ts';
import { Settings, type SandboxOptions } from '../options.ts';
import { GatewayError, type Answer } from './errors.ts';
import { answerExport } from './export.ts';
import { answerList } from './lists.ts';
import { openRateLimiter } from './rate-limit.ts';

/** Error codes meaning that the client disconnected. */
const GONE: readonly unknown[] = [
  'ERR_STREAM_PREMATURE_CLOSE',
  'ECONNRESET',
  'EPIPE',
];

export interface Sandbox extends AsyncDisposable {
  /** Base address of the interface, without a trailing slash. */
  readonly url: string;
  readonly network: Network;
  /** Stops the server. Requests in progress are aborted. */
  stop(): Promise<void>;
}

/**
 * Responds to one request, either with the result of `answerTo` or, as in tests, with
 * something else.
 * @param answerTo returns undefined if the request crashes a node of this release
 */
export type Send = (
  request: IncomingMessage,
  response: ServerResponse,
  answerTo: () => Answer | undefined,
) => Promise<void>;

/**
 * Starts a sandbox network.
 * @throws the error of `listen` if the port is in use
 */
export async function startSandbox(
  options: SandboxOptions = {},
  send: Send = sendAnswer,
): Promise<Sandbox> {
  const settings = new Settings(options);
  const { host, port } = settings;
  const network = openNetwork(settings);
  const answerTo = openHandlers(network);
  const server = createServer((request, response) => {
    send(request, response, () => answerTo(request)).catch((error: unknown) => {
      // If the client is gone, there is nothing to do. Any other error is a bug in the
      // sandbox, so break the connection and let the process crash.
      if (
        error instanceof Error &&
        'code' in error &&
        GONE.includes(error.code)
      )
        return;
      response.destroy();
      throw error;
    });
  });
  async function stop(): Promise<void> {
    if (!server.listening) return;
    const closed = once(server, 'close');
    server.close();
    server.closeAllConnections();
    await closed;
  }
  server.listen(port, host);
  await once(server, 'listening');
  const address = server.address() as AddressInfo;
  const url = `http://${isIPv6(host) ? `[${host}]` : host}:${address.port}`;
  return { url, network, stop, [Symbol.asyncDispose]: stop };
}

/**
 * Sends a response no faster than the client reads it, compressed if the client accepts
 * that.
 */
export const sendAnswer: Send = async (request, response, answerTo) => {
  const answer = answerTo();
  if (answer === undefined) {
    response.destroy();
    return;
  }
  const { status, headers, body } = answer;
  response.statusCode = status;
  response.setHeaders(new Map(Object.entries(headers)));
  const pieces = typeof body === 'string' ? [Buffer.from(body)] : body;
  // Like the service, only look for the word, so `gzip;q=0` is compressed too.
  if (/gzip/i.test(request.headers['accept-encoding'] ?? '')) {
    response.setHeader('Content-Encoding', 'gzip');
    return pipeline(
      pieces,
      createGzip({ level: constants.Z_BEST_SPEED }),
      response,
    );
  }
  if (typeof body === 'string')
    response.setHeader('Content-Length', Buffer.byteLength(body));
  return pipeline(pieces, response);
};

/** Returns the function that handles every route. */
function openHandlers(network: Network) {
  const admit = openRateLimiter(network.settings.rateLimit);
  let exportCalls = 0;
  return ({
    url = '/',
    method,
    headers,
    socket,
  }: IncomingMessage): Answer | undefined => {
    const [path, queryText = ''] = url.split(/\?(.*)/s);
    const [, route] =
      /^\/api\/v2\/(parties|checkpoints|ledgerentry\/export)$/.exec(
        path ?? '',
      ) ?? [];
    if (route === undefined)
      return refuse(new GatewayError('NotFound', 'Not Found'));
    if (method !== 'GET') return refuse(new GatewayError('Unimplemented'));
    if (route !== 'parties' && route !== 'checkpoints') {
      exportCalls += 1;
      return answerExport(network, queryText, exportCalls);
    }
    // The rate limit identifies a client by two addresses: the one it claims and the one
    // it connects from.
    const client = [
      headers['x-forwarded-for'] ?? [],
      socket.remoteAddress ?? '',
    ].flat();
    return answerList(network, route, queryText, () =>
      admit(client.join(', ')),
    );
  };
}

function refuse({ status, body }: GatewayError): Answer {
  return { status, headers: { 'Content-Type': 'application/json' }, body };
}
