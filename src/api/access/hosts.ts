/**
 * Which host a request is for, and which site it was sent from. A browser can be made to
 * send any request, but it names the host that it means and the page that it comes from:
 * so a rebound name and a foreign page are both recognised.
 *
 * A proxy in front rewrites the Host in many ways. Its word on the outer name counts only
 * if a token is asked for; without one, nothing is answered that came through a proxy.
 */
import { isIP, isIPv4 } from 'node:net';
import type { FastifyRequest } from 'fastify';
import { UsageError } from '../../errors/errors.ts';
import { StatusError } from '../kit/status-error.ts';
import { isPagePath, pathOf } from './paths.ts';

/**
 * What proxies add. Without a token a proxy would open the mirror to everybody who
 * reaches it.
 */
const PROXY_HEADERS = [
  'forwarded',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-real-ip',
  'via',
];
/** Longer names than DNS allows are cut where they are shown. */
const SHOWN_CHARACTERS_MAX = 270;

/**
 * Whether the name or address means this machine only. Names are not looked up: what DNS
 * answers can change.
 */
export function isLoopback(host: string): boolean {
  const name = withoutBrackets(host);
  if (name === 'localhost' || name === '::1') return true;
  return isIPv4(name) && name.startsWith('127.');
}

/**
 * Whether a process that asks for no token was addressed by a name of this machine. A
 * browser always sends a Host.
 */
export function isAskedLocally(hostHeader: string | undefined): boolean {
  if (hostHeader === undefined) return true;
  const name = hostName(hostHeader);
  return name !== undefined && isLoopback(name);
}

/**
 * @throws UsageError if others could reach the API and nothing would ask them for a token
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
   * Names beside those of this machine that requests may be for; `*.name` stands for
   * every name below one.
   */
  readonly names: readonly string[];
  /** Without one, only loopback names are answered, and nothing that a proxy sent on. */
  readonly hasToken: boolean;
  /** Whether a page of an origin that the operator named sent a request. */
  readonly isNamedOrigin: (request: FastifyRequest) => boolean;
}

/**
 * @throws StatusError 403 for a name that is not ours, and for a browser that another
 *   site sent
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
  // The browser compares with the address that it shows, and no page can change what it
  // says.
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
 * The name that the outermost proxy was asked for. No page can send this header across
 * sites.
 */
function forwardedHost({ headers }: FastifyRequest): string | undefined {
  const forwarded = headers['x-forwarded-host'];
  return typeof forwarded === 'string'
    ? forwarded.split(',', 1)[0]?.trim()
    : undefined;
}

/** Compares host and port; a scheme's own port equals none. */
function isOriginOf(origin: string, host: string | undefined): boolean {
  const from = URL.parse(origin);
  if (from === null || host === undefined) return false;
  return URL.parse(`${from.protocol}//${host}`)?.host === from.host;
}

/**
 * Following a link to a page from elsewhere is harmless: the page does nothing by itself.
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

  // A probe or scraper asks for the very address that it connects to: no name was
  // resolved, so none was rebound.
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

/** Returns a name in small letters, and an IPv6 address without its brackets. */
function withoutBrackets(host: string): string {
  return host.toLowerCase().replace(/^\[(.*)\]$/, '$1');
}

function refused(message: string): StatusError {
  return new StatusError('permissionDenied', message);
}
