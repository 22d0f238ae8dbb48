/**
 * The way out for clients that take Node's own agents (the object store's, the collector's): the
 * same proxies by the same rules as every other HTTP request.
 */
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { type Ambient, readProxyRules } from './proxy-rules.ts';

/** As many as the object store's client opens without agents of ours. */
const SOCKETS_MAX = 50;

export interface ProxiedAgents {
  readonly http: HttpAgent;
  readonly https: HttpsAgent;
  /** For messages: without user and password. */
  readonly proxy: string;
}

/**
 * Agents that reach `url`, and hosts below its name, through the proxy of the variables. They open
 * no connection; the first request does.
 * @returns undefined if the URL is reached directly
 * @throws UsageError if the variable that applies does not hold the URL of an HTTP proxy
 */
export function openProxiedAgents(
  url: URL,
  ambient: Ambient,
): ProxiedAgents | undefined {
  const proxy = readProxyRules(ambient).proxyOf(url);
  if (proxy === undefined) return undefined;
  // Node does the tunnel and the absolute form; which URL goes where is decided above, because its
  // rules for NO_PROXY are not curl's.
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

/** What a proxy answered that opened no tunnel. */
export interface RefusedTunnel {
  readonly status: number;
}

/** @returns undefined if the error is not one of a tunnel */
export function refusedTunnel(error: unknown): RefusedTunnel | undefined {
  if (!(error instanceof Error) || !('code' in error)) return undefined;
  if (error.code !== 'ERR_PROXY_TUNNEL' || !('statusCode' in error))
    return undefined;
  return { status: Number(error.statusCode) };
}
