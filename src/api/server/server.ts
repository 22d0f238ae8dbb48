/**
 * Builds the read API and the console as one Fastify server, and opens its port. The
 * caller opens the parts of the mirror and passes them in.
 */
import type { IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import Fastify, {
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
} from 'fastify';
import {
  errorCode,
  PermanentError,
  UnreachableError,
} from '../../errors/errors.ts';
import { withoutSecrets } from '../../json/json-value.ts';
import type { Log } from '../../logging/log.ts';
import { addAccess, type AccessSettings } from '../access/access.ts';
import { addBounds } from '../access/connections.ts';
import { addCrossOrigin } from '../access/cross-origin.ts';
import { refuseOpenListening } from '../access/hosts.ts';
import { pathOf } from '../access/paths.ts';
import { addConsoleData, addConsoleFeed } from '../console/console-data.ts';
import { addConsoleLedgers } from '../console/console-ledgers.ts';
import { addConsole } from '../console/console.ts';
import { addCompression } from '../kit/compression.ts';
import {
  RETRY_AFTER_SECONDS,
  sendJson,
  StatusError,
} from '../kit/status-error.ts';
import { openDownloads } from '../mirror/download.ts';
import { addExports } from '../mirror/exports.ts';
import { addProof } from '../mirror/proof.ts';
import { addRuns, shareStatus } from '../mirror/runs.ts';
import { addCompleteHeader } from '../source-api/complete-header.ts';
import { addLedgerExport } from '../source-api/ledger-export.ts';
import { addLists } from '../source-api/lists.ts';
import { addHealth } from './health.ts';
import { addOpenApi } from './openapi.ts';
import type { ApiDeps } from './ports.ts';

/** Limits of Node's HTTP server, in milliseconds. */
export interface HttpTimeouts {
  /**
   * How long a client may take to send a request's headers, from the first byte of the
   * connection or of the request.
   */
  readonly headersTimeout: number;
  /**
   * How long a client may take to send the whole request. It must not be less than
   * `headersTimeout`, because Node would then swap the two limits.
   */
  readonly requestTimeout: number;
  /** How often Node looks for connections that exceed one of these limits. */
  readonly connectionsCheckingInterval: number;
  /**
   * How long a connection may be idle, in both directions, while a response is being
   * sent. Each such connection keeps an object open, so a client that stops reading must
   * not keep its connection forever.
   */
  readonly idleTimeout: number;
}

/**
 * Default for the maximum number of bytes that a process's downloads may send per hour.
 */
const DOWNLOAD_BYTES_PER_HOUR = 100 * 2 ** 30;

export interface ApiOptions extends AccessSettings {
  /** The value of `API_DOWNLOADS_PER_HOUR`, in bytes. */
  readonly apiDownloadsPerHour?: number | undefined;
  /** Shorter limits for tests, which cannot wait for the real ones. */
  readonly timeouts?: Partial<HttpTimeouts> | undefined;
}

const TIMEOUTS: HttpTimeouts = {
  headersTimeout: 10_000,
  requestTimeout: 15_000,
  connectionsCheckingInterval: 1_000,
  // A client may pause for minutes; event streams send a heartbeat much more often.
  idleTimeout: 15 * 60_000,
};
/**
 * How long an idle connection stays open. It is longer than the idle timeout of load
 * balancers (60 s to 10 min): if this server closed the connection first, the balancer's
 * next request would fail with a 502.
 */
const KEEP_ALIVE_MS = 620_000;
const CLOSE_GRACE_MS = 2_000;

const BODY_BYTES_MAX = 16 * 1_024;
const PARAMETER_CHARACTERS_MAX = 100;
const URL_CHARACTERS_MAX = 8_192;

/** Paths of the source-compatible API. */
const SERVICE_PATHS = new Set([
  '/api/v2/parties',
  '/api/v2/checkpoints',
  '/api/v2/ledgerentry/export',
]);

const CONTENT_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join('; ');

/**
 * Headers of every response. They keep other sites from attacking the mirror through a
 * browser.
 */
const HEADERS = {
  'content-security-policy': CONTENT_POLICY,
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  // Do not use `no-referrer`: a browser would then submit the login form with the origin
  // `null`.
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
  'cache-control': 'no-store',
} as const;

/**
 * Headers to remove from an error response: a stream may have set them before it failed.
 */
const STREAM_HEADERS = [
  'accept-ranges',
  'content-encoding',
  'content-disposition',
  'content-length',
  'content-range',
  'etag',
  'vary',
];

/**
 * Explains, by system error code, why the server cannot listen on an address and what to
 * do about it.
 */
const LISTEN_ADVICE: Readonly<Record<string, string>> = {
  EADDRINUSE:
    'another program uses the port; set API_PORT to another, such as 8081, or to ' +
    '0 for any that is free',
  EACCES: 'this user may not use the port; set API_PORT to one above 1023',
  EADDRNOTAVAIL:
    'this machine does not have the address; set API_HOST to one that it has',
};

/**
 * Builds the server without opening a port; `listen` does that. Until then the caller may
 * register more routes, which are protected by the same checks.
 */
export async function buildServer(
  deps: ApiDeps,
  options: ApiOptions,
): Promise<FastifyInstance> {
  const { log, rows } = deps;
  const {
    apiBasePath: basePath = '',
    apiDownloadsPerHour = DOWNLOAD_BYTES_PER_HOUR,
  } = options;
  const server = openServer({ ...TIMEOUTS, ...options.timeouts }, basePath);
  server.removeContentTypeParser('text/plain');
  server.setErrorHandler<FastifyError>((error, request, reply) =>
    answerError(error, request, reply, log),
  );
  // The source responds with 501 to any unsupported method on a known path.
  server.setNotFoundHandler((request, reply) => {
    if (SERVICE_PATHS.has(pathOf(request)))
      return sendError(
        reply,
        new StatusError('unimplemented', 'Method Not Allowed'),
      );
    if (wantsPage(request)) return sendMissingPage(reply, basePath);
    return sendError(reply, new StatusError('notFound', 'Not Found'));
  });

  const status = shareStatus(deps);
  // Read the status in advance, so that the first viewer waits less. A failure here can
  // be ignored, because it is not shared with later callers: they read the status again.
  status().catch(() => undefined);
  addSafety(server);
  addBasePath(server, basePath);
  const { apiOrigins = [] } = options;
  const isNamedOrigin = addCrossOrigin(server, apiOrigins, SERVICE_PATHS);
  await addAccess(server, options, { rows, log, isNamedOrigin });
  addBounds(server);
  addCompression(server);
  await addOpenApi(server, basePath);
  addCompleteHeader(server, SERVICE_PATHS, status);
  addLists(server, rows);
  addLedgerExport(server, deps);
  addExports(server, deps, openDownloads(deps, apiDownloadsPerHour));
  addProof(server, deps);
  addRuns(server, deps, status);
  addHealth(server, deps, status);
  await addConsole(server);
  addConsoleData(server, deps);
  addConsoleLedgers(server, deps);
  addConsoleFeed(server, deps, status);
  return server;
}

function openServer(
  { idleTimeout, ...timeouts }: HttpTimeouts,
  basePath: string,
): FastifyInstance {
  return Fastify({
    logger: false,
    bodyLimit: BODY_BYTES_MAX,
    requestTimeout: timeouts.requestTimeout,
    http: { ...timeouts },
    connectionTimeout: idleTimeout,
    keepAliveTimeout: KEEP_ALIVE_MS,
    // The source does not support HEAD; the mirror's own routes must opt in to it.
    exposeHeadRoutes: false,
    forceCloseConnections: 'idle',
    routerOptions: { maxParamLength: PARAMETER_CHARACTERS_MAX },
    rewriteUrl: (request: IncomingMessage) =>
      withoutBasePath(request.url, basePath),
    // A value that does not match the schema is rejected, not trimmed or coerced until it
    // matches. With `strictNumbers`, bounds would only be checked for finite numbers, and
    // infinity would pass.
    ajv: {
      customOptions: {
        removeAdditional: false,
        coerceTypes: true,
        strictNumbers: false,
      },
    },
    frameworkErrors: (_error, _request, reply) => {
      sendError(
        reply,
        new StatusError('invalidArgument', 'malformed request target'),
      );
    },
  });
}

/**
 * Removes the base path from a URL. Some proxies keep it and others strip it, so both are
 * accepted.
 */
function withoutBasePath(url = '/', basePath: string): string {
  const isBelow = basePath !== '' && url.startsWith(`${basePath}/`);
  return isBelow ? url.slice(basePath.length) : url;
}

/** Prepends the base path to every Location header. */
function addBasePath(server: FastifyInstance, basePath: string): void {
  if (basePath === '') return;
  server.addHook('onRequest', async (request, reply) =>
    // The page's relative URLs only resolve if its own URL ends in a slash.
    pathOf(request) === basePath ? reply.redirect('/', 308) : undefined,
  );
  server.addHook('onSend', async (_request, reply, payload) => {
    const location = reply.getHeader('location');
    if (typeof location === 'string' && location.startsWith('/'))
      reply.header('location', `${basePath}${location}`);
    return payload;
  });
}

/**
 * Sends the response for an error that no handler dealt with. Internal details are only
 * logged.
 */
function answerError(
  error: FastifyError,
  { routeOptions, method }: FastifyRequest,
  reply: FastifyReply,
  log: Log,
): FastifyReply {
  for (const name of STREAM_HEADERS) reply.removeHeader(name);
  if (error instanceof StatusError) return sendError(reply, error);
  const { statusCode = 500 } = error;
  if (statusCode < 500)
    return sendJson(reply.code(statusCode), {
      code: 3,
      message: error.message,
      details: [],
    });

  log.error({ err: error, route: routeOptions.url, method }, 'Request failed');
  if (!(error instanceof UnreachableError))
    return sendError(reply, new StatusError('internal', 'Internal error'));
  return sendError(
    reply,
    new StatusError(
      'unavailable',
      'the mirror cannot reach its database; try again',
    ),
  );
}

/** Paths below these are for programs, which get JSON. */
const PROGRAM_PATHS = /^\/(?:api|mirror|console|assets)\//;

/**
 * Whether a request for an address that does not exist came from a person with a browser.
 */
function wantsPage(request: FastifyRequest): boolean {
  const { accept = '' } = request.headers;
  return (
    request.method === 'GET' &&
    accept.includes('text/html') &&
    !PROGRAM_PATHS.test(pathOf(request))
  );
}

/**
 * Sends a page that links to the console. It loads nothing, because a relative address
 * does not resolve below an unknown path.
 */
function sendMissingPage(reply: FastifyReply, basePath: string): FastifyReply {
  return reply.code(404).type('text/html; charset=utf-8').send(`<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    <title>No such page · ledger-mirror</title>
  </head>
  <body>
    <main>
      <h1>There is no page at this address</h1>
      <p><a href="${basePath}/">Go to the status of the mirror</a></p>
    </main>
  </body>
</html>
`);
}

function sendError(reply: FastifyReply, error: StatusError): FastifyReply {
  const isBusy = error.statusCode === 429 || error.statusCode === 503;
  if (isBusy && !reply.hasHeader('retry-after'))
    reply.header('retry-after', `${RETRY_AFTER_SECONDS}`);
  return sendJson(reply.code(error.statusCode), withoutSecrets(error.body));
}

/**
 * Adds the headers to every response, and checks every URL. Call this before adding any
 * route.
 */
function addSafety(server: FastifyInstance): void {
  server.addHook('onRequest', async (request, reply) => {
    reply.headers(HEADERS);
    if (request.url.length > URL_CHARACTERS_MAX) {
      throw new StatusError(
        'invalidArgument',
        `the URL is longer than ${URL_CHARACTERS_MAX} characters`,
      );
    }
    // The source-compatible API reports a bad parameter with the source's own message.
    if (!request.url.startsWith('/api/v2/') && !isText(request.url)) {
      throw new StatusError(
        'invalidArgument',
        'the URL contains an invalid escape or a NUL character',
      );
    }
  });
}

/**
 * Whether a URL decodes to text that Postgres accepts. Postgres rejects NUL characters,
 * which never occur in the mirror's data.
 */
function isText(url: string): boolean {
  try {
    return !decodeURIComponent(url).includes('\0');
  } catch {
    return false;
  }
}

/** The address that the server listens on. */
export interface ListenAddress {
  readonly host: string;
  /** The port; 0 for any free one. */
  readonly port: number;
  /** The value of API_TOKEN. If it is undefined, only loopback addresses are accepted. */
  readonly token: string | undefined;
}

/** A server that is listening. Disposing of it closes the server. */
export interface Listening extends AsyncDisposable {
  readonly url: string;
}

/**
 * Opens the port.
 * @throws UsageError if other machines could reach it and no token is set
 * @throws PermanentError `API_PORT_UNUSABLE` if the port cannot be opened
 */
export async function listen(
  server: FastifyInstance,
  { host, port, token }: ListenAddress,
): Promise<Listening> {
  refuseOpenListening(host, token);
  try {
    await server.listen({ host, port });
  } catch (cause) {
    const advice =
      LISTEN_ADVICE[errorCode(cause)] ??
      'set API_HOST and API_PORT to an address that is free';
    throw new PermanentError(`Cannot listen on ${host}:${port}: ${advice}`, {
      code: 'API_PORT_UNUSABLE',
      meta: { host, port },
      cause,
    });
  }
  const { port: openedPort } = server.server.address() as AddressInfo;
  const name = host.includes(':') ? `[${host}]` : host;
  return {
    url: `http://${name}:${openedPort}`,
    [Symbol.asyncDispose]: () => close(server),
  };
}

/**
 * Closes the server. Connections that are still open after a short grace period are
 * closed forcibly, because event streams and slow downloads could otherwise delay the
 * shutdown forever.
 */
async function close(server: FastifyInstance): Promise<void> {
  const impatient = setTimeout(
    () => server.server.closeAllConnections(),
    CLOSE_GRACE_MS,
  );
  try {
    await server.close();
  } finally {
    clearTimeout(impatient);
  }
}
