/** The read API and the console as one Fastify server, and its port; everything it needs is handed in. */
import type { AddressInfo } from 'node:net';
import Fastify, {
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
} from 'fastify';
import { errorCode, PermanentError, UnreachableError } from '../../errors/errors.ts';
import { addAccess, type AccessSettings } from '../access/access.ts';
import { addBounds } from '../access/connections.ts';
import { pathOf, refuseOpenListening } from '../access/hosts.ts';
import { addCompression } from '../kit/compression.ts';
import { addConsoleData, addConsoleFeed } from '../console/console-data.ts';
import { addConsoleLedgers } from '../console/console-ledgers.ts';
import { addConsole } from '../console/console.ts';
import { addHealth } from './health.ts';
import { addLedgerExport } from '../source-api/ledger-export.ts';
import { addLists } from '../source-api/lists.ts';
import { addRuns } from '../mirror/runs.ts';
import { addOpenApi } from './openapi.ts';
import type { ApiDeps } from './ports.ts';
import { addExports } from '../mirror/exports.ts';
import { withoutSecrets } from '../../json/json-value.ts';
import { sendJson, StatusError } from '../kit/status-error.ts';

export interface ApiOptions extends AccessSettings {
  /** What a test would wait too long for. */
  readonly timeouts?: Partial<typeof TIMEOUTS> | undefined;
}

const SERVICE_PATHS = new Set([
  '/api/v2/parties',
  '/api/v2/checkpoints',
  '/api/v2/ledgerentry/export',
]);
const BODY_BYTES_MAX = 16 * 1_024;
/**
 * To the end of a request's headers, from the connection or the end of the last answer; to the end of its body; and
 * between two looks for connections that are over either; in milliseconds. Node takes the first two for each other where the first is
 * the larger.
 */
const TIMEOUTS = {
  headersTimeout: 10_000,
  requestTimeout: 15_000,
  connectionsCheckingInterval: 1_000,
};
/** Nothing moved in either direction; event streams send a heartbeat long before. */
const IDLE_TIMEOUT_MS = 120_000;
const KEEP_ALIVE_MS = 60_000;
const PARAMETER_CHARACTERS_MAX = 100;
/** Of answers that would have been another a little later. */
const RETRY_AFTER_SECONDS = 5;

const URL_CHARACTERS_MAX = 8_192;

/** They keep a browser from being used. */
const HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  // Not `no-referrer`: a browser would then send the login's form with the origin `null`.
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
  'cache-control': 'no-store',
} as const;

/** What is wrong with an address that cannot be listened on, and what to do. */
const WHY_UNUSABLE: Readonly<Record<string, string>> = {
  EADDRINUSE:
    'another program uses the port; set API_PORT to another, such as 8081, or to 0 for any that is free',
  EACCES: 'this user may not use the port; set API_PORT to one above 1023',
  EADDRNOTAVAIL:
    'this machine does not have the address; set API_HOST to one that it has',
};
const CLOSE_GRACE_MS = 2_000;

/** Opens nothing: `listen` does. More routes may be registered until then, behind the same checks. */
export async function buildServer(
  deps: ApiDeps,
  options: ApiOptions,
): Promise<FastifyInstance> {
  const { log, rows } = deps;
  const server = openServer({ ...TIMEOUTS, ...options.timeouts });
  server.removeContentTypeParser('text/plain');
  // What no handler answered itself. Nothing of the inside gets out: that goes to the log.
  server.setErrorHandler<FastifyError>((error, { routeOptions, method }, reply) => {
    // Of the stream that failed before its first bytes were out.
    for (const name of ['content-encoding', 'content-disposition', 'vary'])
      reply.removeHeader(name);
    if (error instanceof StatusError) return sendError(reply, error);
    const status = typeof error.statusCode === 'number' ? error.statusCode : 500;
    if (status < 500)
      return sendJson(reply.code(status), {
        code: 3,
        message: error.message,
        details: [],
      });
    log.error({ err: error, route: routeOptions.url, method }, 'Request failed');
    return error instanceof UnreachableError
      ? sendError(
          reply,
          new StatusError(
            'unavailable',
            'the mirror cannot reach its database; try again',
          ),
        )
      : sendError(reply, new StatusError('internal', 'Internal error'));
  });
  // A known path with another method is 501 in the service, whatever the method.
  server.setNotFoundHandler((request, reply) =>
    SERVICE_PATHS.has(pathOf(request))
      ? sendError(reply, new StatusError('unimplemented', 'Method Not Allowed'))
      : sendError(reply, new StatusError('notFound', 'Not Found')),
  );
  addSafety(server);
  await addAccess(server, options, deps);
  addBounds(server);
  addCompression(server);
  await addOpenApi(server);
  addLists(server, rows);
  addLedgerExport(server, deps);
  addExports(server, deps);
  const status = addRuns(server, deps);
  addHealth(server, deps, status);
  await addConsole(server);
  addConsoleData(server, deps);
  addConsoleLedgers(server, rows);
  addConsoleFeed(server, deps, status);
  return server;
}

function openServer(timeouts: typeof TIMEOUTS): FastifyInstance {
  return Fastify({
    logger: false,
    bodyLimit: BODY_BYTES_MAX,
    requestTimeout: timeouts.requestTimeout,
    http: timeouts,
    connectionTimeout: IDLE_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_MS,
    // The service knows no HEAD.
    exposeHeadRoutes: false,
    forceCloseConnections: 'idle',
    routerOptions: { maxParamLength: PARAMETER_CHARACTERS_MAX },
    // What does not fit is refused, not trimmed or unpacked until it does.
    // Nor does an infinite number slip past the bounds that are only asked of finite ones.
    ajv: {
      customOptions: { removeAdditional: false, coerceTypes: true, strictNumbers: false },
    },
    frameworkErrors: (_error, _request, reply) => {
      sendError(reply, new StatusError('invalidArgument', 'malformed request target'));
    },
  });
}

function sendError(reply: FastifyReply, error: StatusError): FastifyReply {
  const isBusy = error.statusCode === 429 || error.statusCode === 503;
  if (isBusy && !reply.hasHeader('retry-after'))
    reply.header('retry-after', `${RETRY_AFTER_SECONDS}`);
  return sendJson(reply.code(error.statusCode), withoutSecrets(error.body));
}

/** Must be added before all routes. */
function addSafety(server: FastifyInstance): void {
  server.addHook('onRequest', async (request, reply) => {
    reply.headers(HEADERS);
    if (request.url.length > URL_CHARACTERS_MAX) {
      throw new StatusError(
        'invalidArgument',
        `the URL is longer than ${URL_CHARACTERS_MAX} characters`,
      );
    }
    // The service's own lists say in their own words what is wrong with a parameter.
    if (!request.url.startsWith('/api/v2/') && !isText(request.url)) {
      throw new StatusError(
        'invalidArgument',
        'the URL holds a broken escape or a NUL character',
      );
    }
  });
}

/** No text of ours holds a NUL, and Postgres takes none. */
function isText(url: string): boolean {
  try {
    return !decodeURIComponent(url).includes('\0');
  } catch {
    return false;
  }
}

export interface Listening extends AsyncDisposable {
  readonly url: string;
}

/**
 * @param address port 0: a free one
 * @throws UsageError where others could reach it and there is no token
 * @throws PermanentError `API_PORT_UNUSABLE`
 */
export async function listen(
  server: FastifyInstance,
  {
    host,
    port,
    token,
  }: { readonly host: string; readonly port: number; readonly token: string | undefined },
): Promise<Listening> {
  refuseOpenListening(host, token);
  try {
    await server.listen({ host, port });
  } catch (cause) {
    const why =
      WHY_UNUSABLE[errorCode(cause)] ??
      'set API_HOST and API_PORT to an address that is free';
    const details = { code: 'API_PORT_UNUSABLE', meta: { host, port }, cause };
    throw new PermanentError(`Cannot listen on ${host}:${port}: ${why}`, details);
  }
  const { port: opened } = server.server.address() as AddressInfo;
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${opened}`,
    [Symbol.asyncDispose]: async () => {
      // Event streams and slow downloads would keep it open for ever.
      const impatient = setTimeout(
        () => server.server.closeAllConnections(),
        CLOSE_GRACE_MS,
      );
      await server.close().finally(() => clearTimeout(impatient));
    },
  };
}
