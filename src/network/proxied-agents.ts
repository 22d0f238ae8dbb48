/**
 * HTTP agents for clients that take Node's own agents: the object store's client and the
 * OpenTelemetry exporters. They use the same proxies, by the same rules, as all other
 * HTTP requests.
 */
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { type Ambient, readProxyRules } from './proxy-rules.ts';

/** The same limit as the object store client's default. */
const SOCKETS_MAX = 50;

export interface ProxiedAgents {
  readonly http: HttpAgent;
  readonly https: HttpsAgent;
  /** The proxy's address for messages, without user and password. */
  readonly proxy: string;
}

/**
 * Creates agents that reach `url`, and its subdomains, through the proxy set in the
 * variables. No connection is opened before the first request.
 * @returns undefined if the URL is reached directly
 * @throws UsageError if the applicable variable is not the URL of an HTTP proxy
 */
export function openProxiedAgents(
  url: URL,
  ambient: Ambient,
): ProxiedAgents | undefined {
  const proxy = readProxyRules(ambient).proxyOf(url);
  if (proxy === undefined) return undefined;
  // Node opens the tunnel or sends the absolute URL. Whether a URL uses the proxy is
  // decided above, because Node's rules for NO_PROXY differ from curl's.
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
