/**
 * For whom a request is, and from where it was sent. A browser can be made to send any request, but it names
 * the host it means and the page it comes from: so a rebound name and a foreign page are both told apart.
 */
import { isIP, isIPv4 } from 'node:net';
import type { FastifyRequest } from 'fastify';
import { UsageError } from '../../errors/errors.ts';
import { StatusError } from '../kit/status-error.ts';

const PAGE_PATHS = new Set([
  '/',
  '/data',
  '/runs',
  '/settings',
  '/login',
  '/queues',
  '/queues/',
]);
/** What proxies add. Without a token a proxy would open the mirror to whoever reaches the proxy. */
const PROXY_HEADERS = [
  'forwarded',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-real-ip',
  'via',
];

/** Does the name or address mean this machine only? Names are not looked up: what DNS says can change. */
export function isLoopback(host: string): boolean {
  const name = bare(host);
  return (
    name === 'localhost' || name === '::1' || (isIPv4(name) && name.startsWith('127.'))
  );
}

/** Was a process that asks for no token asked under a name of this machine? A browser always names one. */
export function isAskedLocally(hostHeader: string | undefined): boolean {
  const name = hostName(hostHeader);
  return hostHeader === undefined || (name !== undefined && isLoopback(name));
}

/** @throws UsageError where others could reach the API and nothing would ask who they are */
export function refuseOpenListening(host: string, token: string | undefined): void {
  if (token !== undefined || isLoopback(host)) return;
  throw new UsageError([
    `API_HOST: ${JSON.stringify(host)} can be reached from other machines, and API_TOKEN is not set; set API_TOKEN (or API_TOKEN_FILE), or listen on 127.0.0.1`,
  ]);
}

export interface HostRules {
  /** Names beside those of this machine that requests may be for; `*.name` for every name below one. */
  readonly names: readonly string[];
  /** Without one, only loopback names are answered, and nothing that a proxy sent on. */
  readonly hasToken: boolean;
}

/** @throws StatusError 403 for a name that is not ours, and for a browser that another site sent */
export function refuseForeign(request: FastifyRequest, rules: HostRules): void {
  const { headers } = request;
  if (!rules.hasToken && PROXY_HEADERS.some((name) => headers[name] !== undefined))
    throw refused(
      'without API_TOKEN nothing is answered that came through a proxy; set API_TOKEN',
    );
  if (!isOurName(request, rules)) {
    const way = rules.hasToken
      ? 'add the name to API_HOSTS'
      : 'without API_TOKEN only loopback names are';
    throw refused(`requests for this host are not answered; ${way}`);
  }
  if (!isOurOrigin(request))
    throw refused('requests from a browser of another origin are not answered');
}

function isOurOrigin(request: FastifyRequest): boolean {
  const { host, origin, 'sec-fetch-site': site = 'none' } = request.headers;
  if (
    origin !== undefined &&
    (!URL.canParse(origin) || new URL(origin).host !== host?.toLowerCase())
  )
    return false;
  if (site === 'same-origin' || site === 'none') return true;
  // Following a link to a page from elsewhere is harmless: the page does nothing by itself.
  return (
    request.method === 'GET' &&
    request.headers['sec-fetch-mode'] === 'navigate' &&
    request.headers['sec-fetch-dest'] === 'document' &&
    PAGE_PATHS.has(pathOf(request))
  );
}

/** The target's path, exactly as it was sent. */
export function pathOf({ url }: FastifyRequest): string {
  return url.split('?', 1)[0] ?? url;
}

function isOurName(request: FastifyRequest, { names, hasToken }: HostRules): boolean {
  const { host } = request.headers;
  if (isAskedLocally(host)) return true;
  const name = hostName(host);
  if (name === undefined || !hasToken) return false;
  // A probe or scraper that asks for the very address it connects to: no name was resolved, none rebound.
  const ownAddress = request.raw.socket.localAddress?.replace(/^::ffff:/, '');
  if (isIP(name) !== 0 && name === ownAddress) return true;
  return names.some((known) =>
    known.startsWith('*.') ? name.endsWith(known.slice(1)) : name === known,
  );
}

function hostName(host: string | undefined): string | undefined {
  return host !== undefined && URL.canParse(`http://${host}`)
    ? bare(new URL(`http://${host}`).hostname)
    : undefined;
}

/** An IPv6 address without its brackets, a name in small letters. */
function bare(host: string): string {
  return host.toLowerCase().replace(/^\[(.*)\]$/, '$1');
}

function refused(message: string): StatusError {
  return new StatusError('permissionDenied', message);
}
