/**
 * The sandbox: a network served over HTTP as the query service serves its own, for `demo`, for tests, and
 * for anyone who wants to try a client without asking the real one.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { Exchange } from './answer.ts';
import type { Fault, Misbehaviour, Route, SandboxRequest } from './faults.ts';
import { Handlers } from './handlers.ts';
import { Network } from '../network/network.ts';
import { sandboxSettings, type SandboxOptions } from '../options.ts';

export interface Sandbox extends AsyncDisposable {
  /** Where the interface is served, without a slash at the end. */
  readonly url: string;
  readonly port: number;
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
    void answer(handlers, judged, judge?.(judged) ?? {}, settings.latencyMs, request, response);
  });
  const port = await listen(server, settings.port, settings.host);
  let stopped: Promise<void> | undefined;
  const stop = (): Promise<void> => (stopped ??= close(server));
  return {
    url: urlOf(settings.host, port),
    port,
    network,
    fatalQuestions: () => fatalQuestions,
    advance: (durationMs) => network.advance(durationMs),
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

function sandboxRequest(request: IncomingMessage, nths: Map<Route, number>): SandboxRequest {
  const target = request.url ?? '/';
  const at = target.indexOf('?');
  const path = at < 0 ? target : target.slice(0, at);
  const route = ROUTES.get(path) ?? 'other';
  const nth = (nths.get(route) ?? 0) + 1;
  nths.set(route, nth);
  const query = at < 0 ? '' : target.slice(at + 1);
  return {
    route,
    method: request.method ?? 'GET',
    path,
    queryText: query,
    query: new URLSearchParams(query),
    nth,
    authorization: request.headers.authorization,
  };
}

/** One request from its arrival to its end; a client that goes away ends it quietly. */
async function answer(
  handlers: Handlers,
  judged: SandboxRequest,
  misbehaviour: Misbehaviour,
  latencyMs: number,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const gone = new AbortController();
  response.once('close', () => gone.abort());
  response.on('error', () => gone.abort());
  const exchange: Exchange = { request, response, misbehaviour, signal: gone.signal };
  try {
    const waitMs = latencyMs + (misbehaviour.delayMs ?? 0);
    if (waitMs > 0) await delay(waitMs, undefined, { signal: gone.signal });
    if (misbehaviour.until !== undefined) await settledOrGone(misbehaviour.until, gone.signal);
    await handlers.answer(exchange, judged);
  } catch (error) {
    if (gone.signal.aborted) return;
    // A defect of the sandbox: the client sees a broken connection, the process a failure.
    response.destroy();
    throw error;
  }
}

/** @throws the signal's reason where the client goes away first */
async function settledOrGone(held: Promise<unknown>, gone: AbortSignal): Promise<void> {
  gone.throwIfAborted();
  await Promise.race([held, once(gone, 'abort')]);
  gone.throwIfAborted();
}

async function listen(server: Server, port: number, host: string): Promise<number> {
  server.listen(port, host);
  await once(server, 'listening');
  const address: AddressInfo | string | null = server.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

function urlOf(host: string, port: number): string {
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

async function close(server: Server): Promise<void> {
  if (!server.listening) return;
  const closed = once(server, 'close');
  server.close();
  server.closeAllConnections();
  await closed;
}
