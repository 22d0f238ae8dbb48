/**
 * Checks which host a request is for, and which site sent it. A malicious page can make a
 * browser send any request, but the browser names the host that the request is for and
 * the page that it comes from. This exposes both a rebound DNS name and a foreign page.
 *
 * A proxy in front rewrites the Host header in many ways. Its statement about the outer
 * name counts only if a token is required; without a token, no request that came through
 * a proxy is answered.
 */
import { isIP, isIPv4 } from 'node:net';
import type { FastifyRequest } from 'fastify';
import { UsageError } from '../../errors/errors.ts';
import { StatusError } from '../kit/status-error.ts';
import { isPagePath, pathOf } from './paths.ts';

/**
 * Headers that proxies add. Without a token, a proxy would open the mirror to every
 * client that can reach the proxy.
 */
const PROXY_HEADERS = [
  'forwarded',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-real-ip',
  'via',
];
/** The most characters of a header that an error shows; DNS allows no longer name. */
const SHOWN_CHARACTERS_MAX = 270;

/**
 * Whether a name or address can only mean this machine. Names are not resolved, because
 * what DNS answers can change.
 */
export function isLoopback(host: string): boolean {
  const name = withoutBrackets(host);
  if (name === 'localhost' || name === '::1') return true;
  return isIPv4(name) && name.startsWith('127.');
}

/**
 * Whether a request, in a process that requires no token, was sent to a name of this
 * machine. Browsers always send a Host header.
 */
export function isAskedLocally(hostHeader: string | undefined): boolean {
  if (hostHeader === undefined) return true;
  const name = hostName(hostHeader);
  return name !== undefined && isLoopback(name);
}

/**
 * Refuses to listen on an address that other machines can reach if no token is set.
 * @throws UsageError with the settings that solve it
 */
export function refuseOpenListening(
  host: string,
  token: string | undefined,
): void {
  if (token !== undefined || isLoopback(host)) return;
  throw new UsageError([
    `API_HOST: ${JSON.stringify(host)} can be reached from other machines, and ` +
      'API_TOKEN is not set; set API_TOKEN (or API_TOKEN_FILE), or listen on ' +
      '127.0.0.1',
  ]);
}

export interface HostRules {
  /**
   * Host names that requests may use, in addition to the names of this machine;
   * `*.name` stands for every name below `name`.
   */
  readonly names: readonly string[];
  /**
   * Whether a token is required. If not, only requests for loopback names are answered,
   * and no request that came through a proxy is.
   */
  readonly hasToken: boolean;
  /** Whether a page of an origin that the operator configured sent the request. */
  readonly isNamedOrigin: (request: FastifyRequest) => boolean;
}

/**
 * Refuses a request for a different host, and a request that a page of a different site
 * made a browser send.
 * @throws StatusError 403
 */
export function refuseForeign(request: FastifyRequest, rules: HostRules): void {
  const { headers } = request;
  if (
    !rules.hasToken &&
    PROXY_HEADERS.some((name) => headers[name] !== undefined)
  )
    throw refused(
      'without API_TOKEN nothing is answered that came through a proxy; set API_TOKEN',
    );
  if (!isOurName(request, rules)) {
    const host = shown(headers.host);
    throw refused(
      rules.hasToken
        ? `requests for the host ${host} are not answered; add the name to API_HOSTS`
        : `requests for the host ${host} are not answered: without API_TOKEN only ` +
            'loopback names are',
    );
  }
  if (rules.isNamedOrigin(request)) return;
  if (!isOurOrigin(request, rules)) throw refused(foreignOrigin(request));
}

function foreignOrigin({ headers }: FastifyRequest): string {
  const from = headers.origin ?? `a ${headers['sec-fetch-site']} page`;
  return (
    `a browser sent this from ${shown(from)}, and the request is for ` +
    `${shown(headers.host)}: requests from another origin are not answered; if a ` +
    'proxy stands in front, let it pass the Host on as it came (nginx: ' +
    'proxy_set_header Host $http_host;); API_ORIGINS lets the pages of an origin ' +
    'read /api/v2'
  );
}

function shown(value: string | undefined): string {
  return (value ?? 'none').slice(0, SHOWN_CHARACTERS_MAX);
}

function isOurOrigin(
  request: FastifyRequest,
  { hasToken }: HostRules,
): boolean {
  const { origin, 'sec-fetch-site': site } = request.headers;
  // The browser itself compares the origin with the address of the page, and no page
  // can influence the result.
  if (hasToken && site === 'same-origin') return true;
  const hosts = [
    request.headers.host,
    hasToken ? forwardedHost(request) : undefined,
  ];
  if (origin !== undefined && !hosts.some((host) => isOriginOf(origin, host)))
    return false;
  if (site === undefined || site === 'same-origin' || site === 'none')
    return true;
  return isLinkToPage(request);
}

/**
 * Returns the name under which the outermost proxy was requested. No page can make a
 * browser send this header to another site.
 */
function forwardedHost({ headers }: FastifyRequest): string | undefined {
  const forwarded = headers['x-forwarded-host'];
  return typeof forwarded === 'string'
    ? forwarded.split(',', 1)[0]?.trim()
    : undefined;
}

/**
 * Whether an origin's host and port are those of `host`. A missing port means the
 * scheme's default port.
 */
function isOriginOf(origin: string, host: string | undefined): boolean {
  const from = URL.parse(origin);
  if (from === null || host === undefined) return false;
  return URL.parse(`${from.protocol}//${host}`)?.host === from.host;
}

/**
 * Whether the request follows a link to a page. Following a link from another site is
 * harmless, because loading the page has no side effects.
 */
function isLinkToPage(request: FastifyRequest): boolean {
  const { headers, method } = request;
  return (
    method === 'GET' &&
    headers['sec-fetch-mode'] === 'navigate' &&
    headers['sec-fetch-dest'] === 'document' &&
    isPagePath(pathOf(request))
  );
}

function isOurName(
  request: FastifyRequest,
  { names, hasToken }: HostRules,
): boolean {
  const { host } = request.headers;
  if (isAskedLocally(host)) return true;
  const name = hostName(host);
  if (name === undefined || !hasToken) return false;

  // A probe or scraper requests the very address that it connects to. It resolved no
  // name, so no name can have been rebound.
  const ownAddress = request.raw.socket.localAddress?.replace(/^::ffff:/, '');
  if (isIP(name) !== 0 && name === ownAddress) return true;
  return names.some((known) =>
    known.startsWith('*.') ? name.endsWith(known.slice(1)) : name === known,
  );
}

function hostName(host: string | undefined): string | undefined {
  if (host === undefined) return undefined;
  const url = URL.parse(`http://${host}`);
  return url === null ? undefined : withoutBrackets(url.hostname);
}

/** Returns a name in lower case, and an IPv6 address without its brackets. */
function withoutBrackets(host: string): string {
  return host.toLowerCase().replace(/^\[(.*)\]$/, '$1');
}

function refused(message: string): StatusError {
  return new StatusError('permissionDenied', message);
}
