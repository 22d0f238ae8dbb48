/**
 * The sandbox: a network served over HTTP as the query service serves its own, for `demo`, for tests, and
 * for anyone who wants to try a client without asking the real one.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { isIPv6 } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { constants, createGzip } from 'node:zlib';
import { openNetwork, type Network } from '../network/network.ts';
import { sandboxSettings, type SandboxOptions } from '../options.ts';
import { gatewayError, ServiceError, type Answer, type Headers } from './errors.ts';
import { answerExport } from './export.ts';
import { openCheckpointList, openPartyList, pageJson, pageOfParty } from './lists.ts';
import { pageOf, pageRequest, readPageParameters } from './paging.ts';
import { Query } from './query.ts';
import { openRateLimiter, type Admission } from './rate-limit.ts';

const LISTS = { '/api/v2/parties': 'parties', '/api/v2/checkpoints': 'checkpoints' } as const;
const EXPORT_PATH = '/api/v2/ledgerentry/export';
const JSON_TYPE: Headers = [['Content-Type', 'application/json']];
/** The handlers' own headers carry gRPC's content type along; so an error has two. */
const JSON_AND_GRPC: Headers = [['Content-Type', ['application/json', 'application/grpc']]];
/** How a client that went away shows. */
const GONE: readonly unknown[] = ['ERR_STREAM_PREMATURE_CLOSE', 'ECONNRESET', 'EPIPE'];

export interface Sandbox extends AsyncDisposable {
  /** Where the interface is served, without a slash at the end. */
  readonly url: string;
  readonly network: Network;
  /** Moves the network ahead: blocks are made, and whatever happens in them is served from now on. */
  advance(durationMs: number): void;
  /** Stops serving; requests in progress are broken off. */
  stop(): Promise<void>;
}

/**
 * Answers one request: with what `answerTo` returns, or, as tests do, with something else.
 * @param answerTo undefined where the question kills a node of this release
 */
export type Send = (
  request: IncomingMessage,
  response: ServerResponse,
  answerTo: () => Answer | undefined,
) => Promise<void>;

/**
 * Starts a sandbox network.
 * @throws UsageError where an option cannot be; the error of `listen` where the port is taken
 */
export async function startSandbox(options: SandboxOptions = {}, send: Send = sendAnswer): Promise<Sandbox> {
  const settings = sandboxSettings(options);
  const network = openNetwork(settings);
  const answerTo = openHandlers(network);
  const server = createServer((request, response) => {
    send(request, response, () => answerTo(request)).catch((error: unknown) => {
      // Else a defect of the sandbox: the client sees a broken connection, the process a failure.
      if (error instanceof Error && 'code' in error && GONE.includes(error.code)) return;
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
  const { host } = settings;
  server.listen(settings.port, host);
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' ? address?.port : 0;
  return {
    url: `http://${isIPv6(host) ? `[${host}]` : host}:${port}`,
    network,
    advance: (durationMs) => network.advance(durationMs),
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

/** Compressed where the client takes it, and no faster than it reads; a question that kills breaks off. */
export const sendAnswer: Send = async (request, response, answerTo) => {
  const answer = answerTo();
  if (answer === undefined) {
    response.destroy();
    return;
  }
  const { status, headers, body } = answer;
  response.statusCode = status;
  for (const [name, value] of headers) response.setHeader(name, value);
  const pieces = typeof body === 'string' ? [Buffer.from(body)] : body;
  // The service looks for the word only, so `gzip;q=0` compresses too.
  if (/gzip/i.test(request.headers['accept-encoding'] ?? '')) {
    response.setHeader('Content-Encoding', 'gzip');
    return pipeline(pieces, createGzip({ level: constants.Z_BEST_SPEED }), response);
  }
  if (typeof body === 'string') response.setHeader('Content-Length', Buffer.byteLength(body));
  return pipeline(pieces, response);
};

/** What each route answers. Errors of every kind end here and become the service's answers. */
function openHandlers(network: Network): (request: IncomingMessage) => Answer | undefined {
  const admit = openRateLimiter(network.settings.rateLimit);
  let exports = 0;
  return ({ url = '/', method, headers, socket }) => {
    const [path = '/', queryText = ''] = url.split(/\?(.*)/s);
    const list = Object.entries(LISTS).find(([ofList]) => ofList === path)?.[1];
    if (list === undefined && path !== EXPORT_PATH) {
      return refuse(gatewayError('NotFound', 'Not Found'), JSON_TYPE);
    }
    if (method !== 'GET') return refuse(gatewayError('Unimplemented'), JSON_TYPE);
    if (list === undefined) return answerExport(network, queryText, (exports += 1));
    // Whom the rate limit takes a client for: what it says of itself, and where it comes from.
    const client = [headers['x-forwarded-for'] ?? [], socket.remoteAddress ?? ''].flat();
    return answerList(network, list, queryText, () => admit(client.join(', ')));
  };
}

function refuse(error: ServiceError, headers: Headers): Answer {
  return { status: error.status, headers, body: error.body() };
}

function answerList(
  network: Network,
  list: 'parties' | 'checkpoints',
  queryText: string,
  admit: () => Admission,
): Answer {
  const head = network.head();
  let handlerHeaders: Headers = [];
  try {
    const query = new Query(queryText);
    const partyId = query.text('party_id') ?? '';
    const parameters = readPageParameters(query);
    const { headers, refused } = admit();
    const [height, micros] =
      head.block === 0 ? [0, 0n] : [network.chain.heightOf(head.block), network.chain.timeOf(head.block)];
    handlerHeaders = [
      ...headers,
      ['X-Block-Height', `${height}`],
      ['X-Block-Timestamp', `${micros * 1000n}`],
    ];
    if (refused !== undefined) throw refused;
    const request = pageRequest(parameters);
    const open = list === 'parties' ? openPartyList : openCheckpointList;
    const isLookup = list === 'parties' && partyId !== '';
    const page = isLookup ? pageOfParty(network, partyId, head) : pageOf(open(network, head), request);
    const json = pageJson(list, page);
    const body = query.has('pretty') ? JSON.stringify(JSON.parse(json), undefined, 1) : json;
    return { status: 200, headers: [...JSON_TYPE, ...handlerHeaders], body };
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    const type = error.origin === 'gateway' ? JSON_TYPE : JSON_AND_GRPC;
    return refuse(error, [...type, ...handlerHeaders]);
  }
}
