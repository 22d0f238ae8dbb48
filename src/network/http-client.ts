/**
 * Sends the HTTP requests of this process through the configured proxies, with the
 * trusted CAs. Clients that take Node's agents get them from proxied-agents.ts.
 */
import type { Socket } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import { Agent, buildConnector, type Dispatcher } from 'undici';
import {
  checkProxies,
  readProxyRules,
  type Ambient,
  type Proxy,
} from './proxy-rules.ts';
import { readAuthorities } from './trust.ts';
import { openTunnel } from './tunnel.ts';
import type { ClientCertificate } from './client-certificate.ts';

/**
 * Maximum number of connections per origin. Far fewer are used: one page of each list,
 * the exports, and a probe.
 */
const CONNECTIONS_MAX = 128;
const CONNECT_MS = 10_000;

export interface HttpClientOptions {
  /**
   * Timeout for opening the connection; it applies to the tunnel and to TLS separately.
   */
  readonly connectMs?: number | undefined;
  /**
   * Returns the certificate to authenticate with. Once it returns a different one, new
   * connections are opened for it; requests in flight keep theirs.
   */
  readonly readCertificate?: (() => ClientCertificate | undefined) | undefined;
}

export interface OutgoingRequest extends Omit<
  Dispatcher.RequestOptions,
  'origin' | 'path' | 'headers'
> {
  readonly headers?: Readonly<Record<string, string>>;
}

export interface Answer extends Dispatcher.ResponseData {
  /**
   * The address of the proxy that forwarded the response, or wrote it itself. Undefined
   * for a direct connection, and for a tunnel, which the proxy cannot write into.
   */
  readonly proxy: string | undefined;
}

export interface HttpClient extends AsyncDisposable {
  /**
   * Sends one request and resolves with the headers of its response.
   * @throws ProxyError if a proxy refuses to open a tunnel
   */
  request(url: URL, options: OutgoingRequest): Promise<Answer>;
  /** Aborts requests in flight. */
  close(): Promise<void>;
}

/**
 * Prepares the agents. No connection is opened before the first request.
 * @param ambient the proxy variables and `NODE_EXTRA_CA_CERTS`, from the environment or
 *   `.env`
 * @throws UsageError if a proxy's URL or the CA file cannot be used
 */
export function openHttpClient(
  ambient: Ambient,
  options: HttpClientOptions = {},
): HttpClient {
  const { connectMs = CONNECT_MS, readCertificate } = options;
  checkProxies(ambient);
  const rules = readProxyRules(ambient);
  const ca = readAuthorities(ambient);
  const tls = {
    timeout: connectMs,
    allowH2: false,
    ...(ca === undefined ? {} : { ca }),
  };
  const pool = { connections: CONNECTIONS_MAX, allowH2: false };
  // The client's certificate is for the service and is never presented to the proxy.
  const forward = new Agent({ ...pool, connect: tls });
  const retired = new Set<Agent>();
  let current = openConnections(readCertificate?.());

  /** Opens the connections on which the client presents this certificate. */
  function openConnections(certificate: ClientCertificate | undefined) {
    const toService = { ...tls, ...certificate };
    const direct = new Agent({ ...pool, connect: openConnector(toService) });
    return {
      certificate,
      direct,
      toService,
      tunnels: new Map<string, Agent>(),
    };
  }

  function connections() {
    const certificate = readCertificate?.();
    if (isDeepStrictEqual(certificate, current.certificate)) return current;
    for (const agent of [current.direct, ...current.tunnels.values()]) {
      retired.add(agent);
      // Waits for the requests in flight. The promise rejects if the agent is destroyed.
      void agent
        .close()
        .catch(() => undefined)
        .finally(() => retired.delete(agent));
    }
    current = openConnections(certificate);
    return current;
  }

  function tunnelThrough(proxy: Proxy): Agent {
    const { toService, tunnels } = connections();
    const existing = tunnels.get(proxy.href);
    if (existing !== undefined) return existing;
    const connectTls = openConnector(toService);

    async function dial(
      target: buildConnector.Options,
      callback: buildConnector.Callback,
    ): Promise<void> {
      const port = target.port === '' ? '443' : target.port;
      const address = `${target.hostname}:${port}`;
      let httpSocket: Socket;
      try {
        httpSocket = await openTunnel(proxy, address, {
          timeoutMs: connectMs,
          ca,
        });
      } catch (error) {
        callback(error as Error, null);
        return;
      }
      connectTls({ ...target, httpSocket }, callback);
    }

    const tunnel = new Agent({
      ...pool,
      connect: (target, callback) => void dial(target, callback),
    });
    tunnels.set(proxy.href, tunnel);
    return tunnel;
  }

  async function request(url: URL, given: OutgoingRequest): Promise<Answer> {
    const path = `${url.pathname}${url.search}`;
    const proxy = rules.proxyOf(url);
    if (proxy === undefined) {
      const answer = await connections().direct.request({
        ...given,
        origin: url.origin,
        path,
      });
      return { ...answer, proxy: undefined };
    }
    if (url.protocol === 'https:') {
      const tunnel = tunnelThrough(proxy);
      const answer = await tunnel.request({
        ...given,
        origin: url.origin,
        path,
      });
      return { ...answer, proxy: undefined };
    }
    // Plain http is not tunnelled: most proxies allow CONNECT only to port 443.
    const headers: Record<string, string> = {
      ...given.headers,
      host: url.host,
    };
    if (proxy.authorization !== undefined)
      headers['proxy-authorization'] = proxy.authorization;
    const answer = await forward.request({
      ...given,
      headers,
      origin: proxy.origin,
      path: `${url.origin}${path}`,
    });
    return { ...answer, proxy: proxy.origin };
  }

  async function close(): Promise<void> {
    const { direct, tunnels } = current;
    const agents = [direct, forward, ...tunnels.values(), ...retired];
    await Promise.all(agents.map((agent) => agent.destroy()));
  }

  return { request, close, [Symbol.asyncDispose]: close };
}

/**
 * Returns undici's connector, with sockets that close at their first error. With TLS 1.3
 * a server refuses the client's certificate after the handshake: it sends an alert and
 * ends the connection. Node reports the alert but leaves the socket open, so the end of
 * the connection would replace the alert, and the request would fail with
 * `other side closed`.
 */
function openConnector(
  options: buildConnector.BuildOptions,
): buildConnector.connector {
  const connect = buildConnector(options);
  return (target, callback) => {
    connect(target, (...[error, socket]) => {
      if (error !== null) {
        callback(error, null);
        return;
      }
      socket.once('error', (first) => socket.destroy(first));
      callback(null, socket);
    });
  };
}
