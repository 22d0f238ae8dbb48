/**
 * HTTP agents for clients that take Node's own agents: the object store's client and the
 * OpenTelemetry exporters. They use the same proxies by the same rules as every other
 * HTTP request.
 */
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { type Ambient, readProxyRules } from './proxy-rules.ts';

/** The same limit that the object store's client has by default. */
const SOCKETS_MAX = 50;

export interface ProxiedAgents {
  readonly http: HttpAgent;
  readonly https: HttpsAgent;
  /** The proxy's address for messages, without user and password. */
  readonly proxy: string;
}

/**
 * Creates agents that reach `url`, and hosts below its name, through the proxy that the
 * variables name. No connection is opened before the first request.
 * @returns undefined if the URL is reached directly
 * @throws UsageError if the variable that applies does not hold the URL of an HTTP proxy
 */
export function openProxiedAgents(
  url: URL,
  ambient: Ambient,
): ProxiedAgents | undefined {
  const proxy = readProxyRules(ambient).proxyOf(url);
  if (proxy === undefined) return undefined;
  // Node opens the tunnel or sends the absolute URL. Which URL uses the proxy is decided
  // above, because Node's rules for NO_PROXY differ from curl's.
  const options = {
    keepAlive: true,
    maxSockets: SOCKETS_MAX,
    proxyEnv: { HTTP_PROXY: proxy.href, HTTPS_PROXY: proxy.href },
  };
  return {
    http: new HttpAgent(options),
    https: new HttpsAgent(options),
    proxy: proxy.origin,
  };
}

/** The response of a proxy that refused to open a tunnel. */
export interface RefusedTunnel {
  readonly status: number;
}

/**
 * Returns the response of a proxy that refused a tunnel; undefined if the error has a
 * different cause.
 */
export function refusedTunnel(error: unknown): RefusedTunnel | undefined {
  if (!(error instanceof Error) || !('code' in error)) return undefined;
  if (error.code !== 'ERR_PROXY_TUNNEL' || !('statusCode' in error))
    return undefined;
  return { status: Number(error.statusCode) };
}
