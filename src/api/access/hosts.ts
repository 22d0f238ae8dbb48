/**
 * Checks which host a request is for, and which site sent it. A malicious page can make a
 * browser send any request, but the browser names the host that the request is for and
 * the page that it comes from. Checking both defeats DNS rebinding and cross-site
 * requests.
 *
 * Proxies rewrite the Host header in many ways. The external name that a proxy reports is
 * trusted only if a token is required; without a token, requests forwarded by a proxy are
 * refused.
 */
import { isIP, isIPv4 } from 'node:net';
import type { FastifyRequest } from 'fastify';
import { UsageError } from '../../errors/errors.ts';
import { StatusError } from '../kit/status-error.ts';
import { isPagePath, pathOf } from './paths.ts';

/**
 * Headers that proxies add. If no token is required, requests with one of them are
 * refused: otherwise, every client that can reach the proxy could use the mirror.
 */
const PROXY_HEADERS = [
  'forwarded',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-real-ip',
  'via',
];
/** Maximum number of header characters quoted in an error; longer than any DNS name. */
const SHOWN_CHARACTERS_MAX = 270;

/**
 * Whether a host is a loopback name or address, which always means this machine. Names
 * are not resolved, because a DNS response can change.
 */
export function isLoopback(host: string): boolean {
  const name = withoutBrackets(host);
  if (name === 'localhost' || name === '::1') return true;
  return isIPv4(name) && name.startsWith('127.');
}

/**
 * Whether a request was sent to a name of this machine; checked if no token is required.
 * A request without a Host header is accepted: browsers always send one, so it comes from
 * another program.
 */
export function isAskedLocally(hostHeader: string | undefined): boolean {
  if (hostHeader === undefined) return true;
  const name = hostName(hostHeader);
  return name !== undefined && isLoopback(name);
}

/**
 * Refuses to listen on an address that other machines can reach, unless a token is set.
 * @throws UsageError that names the settings to change
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
   * Host names that requests may use, in addition to the names of this machine; `*.name`
   * matches every subdomain of `name`.
   */
  readonly names: readonly string[];
  /**
   * Whether a token is required. Otherwise only requests to loopback names are accepted,
   * and requests forwarded by a proxy are refused.
   */
  readonly hasToken: boolean;
  /** Whether the request came from a page of a configured origin. */
  readonly isNamedOrigin: (request: FastifyRequest) => boolean;
}

/**
 * Refuses requests to a different host, and requests that a page of another site made a
 * browser send.
 * @throws StatusError 403
 */
export function refuseForeign(request: FastifyRequest, rules: HostRules): void {
  const { headers } = request;
  if (
    !rules.hasToken &&
    PROXY_HEADERS.some((name) => headers[name] !== undefined)
  )
    throw refused(
      'without API_TOKEN, requests that come through a proxy are not ' +
        'accepted; set API_TOKEN',
    );
  if (!isOurName(request, rules)) {
    const host = shown(headers.host);
    throw refused(
      rules.hasToken
        ? `requests for the host ${host} are not accepted; add the name ` +
            'to API_HOSTS'
        : `requests for the host ${host} are not accepted: without ` +
            'API_TOKEN only loopback names are',
    );
  }
  if (rules.isNamedOrigin(request)) return;
  if (!isOurOrigin(request, rules)) throw refused(foreignOrigin(request));
}

function foreignOrigin({ headers }: FastifyRequest): string {
  const from = headers.origin ?? `a ${headers['sec-fetch-site']} page`;
  return (
    `a browser sent this from ${shown(from)}, and the request is for ` +
    `${shown(headers.host)}: requests from another origin are not accepted; ` +
    'if a proxy stands in front, let it pass the Host on as it came (nginx: ' +
    'proxy_set_header Host $http_host;); API_ORIGINS lets the pages of an ' +
    'origin read /api/v2'
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
  // The browser itself compares the page's origin with the requested address, and no page
  // can forge the result.
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
 * Returns the host name that the client sent to the outermost proxy. The proxy reports it
 * in `X-Forwarded-Host`, a header that no page can make a browser send to another site.
 */
function forwardedHost({ headers }: FastifyRequest): string | undefined {
  const forwarded = headers['x-forwarded-host'];
  return typeof forwarded === 'string'
    ? forwarded.split(',', 1)[0]?.trim()
    : undefined;
}

/**
 * Whether an origin's host and port match `host`. A missing port means the scheme's
 * default port.
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

  // Probes and scrapers use the address that they connect to as the host. No name was
  // resolved, so DNS rebinding is impossible.
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
