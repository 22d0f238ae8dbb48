/**
 * The connections to the source: directly or through the proxy that the environment
 * names, with its CAs.
 */
import { readFileSync } from 'node:fs';
import { getCACertificates } from 'node:tls';
import { Agent, EnvHttpProxyAgent, type Dispatcher } from 'undici';
import { UsageError } from '../../errors/errors.ts';

/** Few at once: one page of each list, the exports, and a probe. */
const CONNECTIONS_MAX = 128;

/**
 * @param ambient `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` (either case) and
 *   `NODE_EXTRA_CA_CERTS`, `.env` included
 * @throws UsageError where the file of CAs cannot be read or a proxy's URL is none
 */
export function openDispatcher(
  ambient: Readonly<Record<string, string>>,
  connectMs: number,
): Dispatcher {
  const named = (name: string): string =>
    ambient[name.toLowerCase()] ?? ambient[name] ?? '';
  const ca = certificates(ambient['NODE_EXTRA_CA_CERTS']);
  const tls = { timeout: connectMs, ...(ca === undefined ? {} : { ca }) };
  const common = { connections: CONNECTIONS_MAX, allowH2: false, connect: tls };
  const httpProxy = named('HTTP_PROXY');
  const httpsProxy = named('HTTPS_PROXY');
  if (httpProxy === '' && httpsProxy === '') return new Agent(common);
  refuseProxy('HTTP_PROXY', httpProxy);
  refuseProxy('HTTPS_PROXY', httpsProxy);
  return new EnvHttpProxyAgent({
    ...common,
    httpProxy,
    httpsProxy,
    noProxy: named('NO_PROXY'),
    requestTls: tls,
    proxyTls: tls,
  });
}

/** Node reads the variable at its start, before `.env` is read. */
function certificates(path: string | undefined): string[] | undefined {
  if (path === undefined || path === '') return undefined;
  try {
    return [...getCACertificates('default'), readFileSync(path, 'utf8')];
  } catch (error) {
    const state = error instanceof Error ? error.message : String(error);
    throw new UsageError([
      `NODE_EXTRA_CA_CERTS: cannot be read (${state}); give a readable PEM file`,
    ]);
  }
}

function refuseProxy(name: string, url: string): void {
  if (url === '') return;
  if (URL.canParse(url) && ['http:', 'https:'].includes(new URL(url).protocol))
    return;
  throw new UsageError([
    `${name}: not an http:// or https:// URL; give one, or leave it unset`,
  ]);
}
