/**
 * The sandbox: a network served over HTTP as the query service serves its own, for `demo`, for tests, and
 * for anyone who wants to try a client without asking the real one.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { isIPv6 } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Exchange } from './answer.ts';
import type { Fault, Route, SandboxRequest } from './faults.ts';
import { Handlers } from './handlers.ts';
import { Network } from '../network/network.ts';
import { sandboxSettings, type SandboxOptions } from '../options.ts';

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
  let fatalQuestions = 0;
  const handlers = new Handlers(network, () => {
    fatalQuestions += 1;
    if (settings.onFatalQuestion === 'crash') void close(server);
  });
  const nths = new Map<Route, number>();

  const server = createServer((request, response) => {
    const judged = sandboxRequest(request, nths);
    const bytesBefore = request.socket.bytesWritten;
    response.once('close', () => {
      onAnswered?.(judged.route, response.statusCode, request.socket.bytesWritten - bytesBefore);
    });
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    response.on('error', () => gone.abort());
    const misbehaviour = judge?.(judged) ?? {};
    const exchange = { request, response, misbehaviour, signal: gone.signal };
    void answer(handlers, judged, exchange, settings.latencyMs);
  });
  const port = await listen(server, settings.port, settings.host);
  const stop = (): Promise<void> => close(server);
  return {
    url: `http://${isIPv6(settings.host) ? `[${settings.host}]` : settings.host}:${port}`,
    network,
    fatalQuestions: () => fatalQuestions,
    advance: (durationMs) => network.advance(durationMs),
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

function sandboxRequest(request: IncomingMessage, nths: Map<Route, number>): SandboxRequest {
  const [path = '/', ...rest] = (request.url ?? '/').split('?');
  const queryText = rest.join('?');
  const route = ROUTES.get(path) ?? 'other';
  const nth = (nths.get(route) ?? 0) + 1;
  nths.set(route, nth);
  return {
    route,
    method: request.method ?? 'GET',
    path,
    queryText,
    query: new URLSearchParams(queryText),
    nth,
    authorization: request.headers.authorization,
  };
}

/** One request from its arrival to its end; a client that goes away ends it quietly. */
async function answer(
  handlers: Handlers,
  judged: SandboxRequest,
  exchange: Exchange,
  latencyMs: number,
): Promise<void> {
  const { misbehaviour, response, signal } = exchange;
  try {
    const delayMs = latencyMs + (misbehaviour.delayMs ?? 0);
    if (delayMs > 0) await sleep(delayMs, undefined, { signal });
    if (misbehaviour.until !== undefined) await Promise.race([misbehaviour.until, once(signal, 'abort')]);
    signal.throwIfAborted();
    await handlers.answer(exchange, judged);
  } catch (error) {
    if (signal.aborted) return;
    // A defect of the sandbox: the client sees a broken connection, the process a failure.
    response.destroy();
    throw error;
  }
}

async function listen(server: Server, port: number, host: string): Promise<number> {
  server.listen(port, host);
  await once(server, 'listening');
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

async function close(server: Server): Promise<void> {
  if (!server.listening) return;
  const closed = once(server, 'close');
  server.close();
  server.closeAllConnections();
  await closed;
}
