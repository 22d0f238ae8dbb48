/** Opens tunnels through an HTTP proxy (CONNECT), and reports the proxy's own errors. */
import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { Socket } from 'node:net';
import type { Proxy } from './proxy-rules.ts';

/** The proxy failed, so the service beyond it was never reached. */
export class ProxyError extends Error {
  /** The proxy's address, without user and password. */
  readonly proxy: string;
  /**
   * The status of the proxy's response; undefined if the proxy itself cannot be reached.
   */
  readonly status: number | undefined;

  constructor(proxy: string, status: number | undefined, cause?: unknown) {
    super(
      describe(proxy, status, cause),
      cause === undefined ? undefined : { cause },
    );
    this.name = 'ProxyError';
    this.proxy = proxy;
    this.status = status;
  }
}

function describe(
  proxy: string,
  status: number | undefined,
  cause: unknown,
): string {
  if (status !== undefined) return `the proxy ${proxy} answers ${status}`;
  const reason = cause instanceof Error ? cause.message : String(cause);
  return `the proxy ${proxy} cannot be reached (${reason})`;
}

export interface TunnelOptions {
  /** How long to wait for the proxy's response. */
  readonly timeoutMs: number;
  /** CAs for a proxy that is itself reached over TLS. */
  readonly ca: readonly string[] | undefined;
}

/**
 * Opens a tunnel.
 * @param target `host:port`
 * @returns a connection to the target, on which nothing has been sent yet
 * @throws ProxyError if the tunnel is not open before the timeout
 */
export function openTunnel(
  proxy: Proxy,
  target: string,
  { timeoutMs, ca }: TunnelOptions,
): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  const isTls = proxy.origin.startsWith('https:');
  const send = isTls ? requestHttps : requestHttp;
  const authorization = proxy.authorization;
  const request = send(proxy.origin, {
    method: 'CONNECT',
    path: target,
    headers: {
      host: target,
      ...(authorization === undefined
        ? {}
        : { 'proxy-authorization': authorization }),
    },
    // Use neither the environment's own proxy nor a shared connection.
    agent: false,
    ...(isTls && ca !== undefined ? { ca: [...ca] } : {}),
  });
  const timer = setTimeout(() => {
    request.destroy(new Error(`no answer within ${timeoutMs} ms`));
  }, timeoutMs);
  request.on('connect', (response, socket) => {
    if (response.statusCode === 200) {
      resolve(socket);
      return;
    }
    socket.destroy();
    reject(new ProxyError(proxy.origin, response.statusCode));
  });
  // A proxy that does not support CONNECT responds to it as to any other request.
  request.on('response', (response) => {
    response.destroy();
    reject(new ProxyError(proxy.origin, response.statusCode));
  });
  request.on('error', (error) =>
    reject(new ProxyError(proxy.origin, undefined, error)),
  );
  request.end();
  return promise.finally(() => clearTimeout(timer));
}
