/**
 * The sandbox: a network served over HTTP as the query service serves its own, for `demo`, for tests, and
 * for anyone who wants to try a client without asking the real one.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { isIPv6 } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Network } from '../network/network.ts';
import { sandboxSettings, type SandboxOptions } from '../options.ts';
import { sendAnswer } from './answer.ts';
import type { Fault, Route, SandboxRequest } from './faults.ts';
import { openHandlers } from './handlers.ts';

export interface Sandbox extends AsyncDisposable {
  /** Where the interface is served, without a slash at the end. */
  readonly url: string;
  readonly network: Network;
  /** Questions so far that kill a node of this release: an end without a start. */
  readonly fatalQuestions: () => number;
  /** Moves the network ahead: blocks are made, and whatever happens in them is served from now on. */
  advance(durationMs: number): void;
  /** Stops serving; requests in progress are broken off. */
  stop(): Promise<void>;
}

/** How tests watch and disturb it. */
export interface SandboxHooks {
  readonly judge?: Fault;
  /** Told when an answer is over; its bytes include the headers. */
  readonly onAnswered?: (route: Route, status: number, bytes: number) => void;
}

const ROUTES = new Map<string, Route>([
  ['/api/v2/parties', 'parties'],
  ['/api/v2/checkpoints', 'checkpoints'],
  ['/api/v2/ledgerentry/export', 'export'],
]);

/**
 * Starts a sandbox network.
 * @throws UsageError where an option cannot be; the error of `listen` where the port is taken
 */
export async function startSandbox(
  options: SandboxOptions = {},
  { judge, onAnswered }: SandboxHooks = {},
): Promise<Sandbox> {
  const settings = sandboxSettings(options);
  const network = new Network(settings);
  const answerTo = openHandlers(network);
  const nths = new Map<Route, number>();
  let fatalQuestions = 0;

  /** One request from its arrival to its end; a client that goes away ends it quietly. */
  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const asked = readRequest(request, nths);
    const bytesBefore = request.socket.bytesWritten;
    const gone = new AbortController();
    response.once('close', () => {
      gone.abort();
      onAnswered?.(asked.route, response.statusCode, request.socket.bytesWritten - bytesBefore);
    });
    response.on('error', () => gone.abort());
    const { signal } = gone;
    try {
      const misbehaviour = judge?.(asked) ?? {};
      const delayMs = settings.latencyMs + (misbehaviour.delayMs ?? 0);
      if (delayMs > 0) await sleep(delayMs, undefined, { signal });
      if (misbehaviour.until !== undefined) await Promise.race([misbehaviour.until, once(signal, 'abort')]);
      signal.throwIfAborted();
      const exchange = { request, response, misbehaviour, signal };
      const answer = answerTo(asked, exchange);
      if (answer !== undefined) return await sendAnswer(exchange, answer);
      fatalQuestions += 1;
      if (settings.onFatalQuestion === 'crash') void stop();
      response.destroy();
    } catch (error) {
      if (signal.aborted) return;
      // A defect of the sandbox: the client sees a broken connection, the process a failure.
      response.destroy();
      throw error;
    }
  }

  const server = createServer((request, response) => void serve(request, response));
  async function stop(): Promise<void> {
    if (!server.listening) return;
    const closed = once(server, 'close');
    server.close();
    server.closeAllConnections();
    await closed;
  }
  const { host } = settings;
  server.listen(settings.port, host);
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' ? address?.port : 0;
  return {
    url: `http://${isIPv6(host) ? `[${host}]` : host}:${port}`,
    network,
    fatalQuestions: () => fatalQuestions,
    advance: (durationMs) => network.advance(durationMs),
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

function readRequest(request: IncomingMessage, nths: Map<Route, number>): SandboxRequest {
  const [path = '/', ...rest] = (request.url ?? '/').split('?');
  const queryText = rest.join('?');
  const route = ROUTES.get(path) ?? 'other';
  const nth = (nths.get(route) ?? 0) + 1;
  nths.set(route, nth);
  const { method = 'GET', headers } = request;
  const query = new URLSearchParams(queryText);
  return { route, method, path, queryText, query, nth, authorization: headers.authorization };
}
