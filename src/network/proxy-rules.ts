/**
 * Decides which proxy a URL is reached through, using the variables that curl and most
 * other tools read.
 */
import { BlockList, isIP } from 'node:net';
import { UsageError } from '../errors/errors.ts';

/** The settings of other libraries, by name: `HTTPS_PROXY`, `NODE_EXTRA_CA_CERTS`, … */
export type Ambient = Readonly<Record<string, string | undefined>>;

/** A proxy, and the details that a request to it needs. */
export interface Proxy {
  /** The address for connections and messages, without user and password. */
  readonly origin: string;
  /** The URL for Node's agents, with user and password. */
  readonly href: string;
  /** The value of `Proxy-Authorization`; undefined if the variable has no user. */
  readonly authorization: string | undefined;
}

export interface ProxyRules {
  /**
   * Returns the proxy for a URL, or undefined if the URL is reached directly.
   * @throws UsageError if the applicable variable is not the URL of an HTTP proxy
   */
  proxyOf(url: URL): Proxy | undefined;
}

/** curl's default ports for a proxy without an explicit port. */
const DEFAULT_PORTS: Readonly<Record<string, string>> = {
  'http:': '1080',
  'https:': '443',
};

/**
 * Reads `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`. The lower-case name
 * takes precedence over the upper-case one, an empty value is treated as unset, and the
 * scheme of a proxy may be missing.
 */
export function readProxyRules(ambient: Ambient): ProxyRules {
  const isExempt = readExemptions(variable(ambient, 'no_proxy')?.text ?? '');
  return {
    proxyOf(url) {
      if (isExempt(url)) return undefined;
      const scheme = url.protocol === 'https:' ? 'https_proxy' : 'http_proxy';
      const given = variable(ambient, scheme) ?? variable(ambient, 'all_proxy');
      return given === undefined ? undefined : readProxy(given);
    },
  };
}

/**
 * Checks the variables at startup, so that a typo is found before the first request.
 * `ALL_PROXY` is checked only when it applies, because shells set it to SOCKS for other
 * programs.
 * @throws UsageError with a line for each variable that is not the URL of an HTTP proxy
 */
export function checkProxies(ambient: Ambient): void {
  const problems: string[] = [];
  for (const name of ['http_proxy', 'https_proxy']) {
    const given = variable(ambient, name);
    if (given === undefined) continue;
    const problem = proxyProblem(given);
    if (problem !== undefined) problems.push(problem);
  }
  if (problems.length > 0) throw new UsageError(problems);
}

interface Given {
  readonly name: string;
  readonly text: string;
}

function variable(ambient: Ambient, lowerCaseName: string): Given | undefined {
  for (const name of [lowerCaseName, lowerCaseName.toUpperCase()]) {
    const text = ambient[name]?.trim() ?? '';
    if (text !== '') return { name, text };
  }
  return undefined;
}

function readProxy(given: Given): Proxy {
  const problem = proxyProblem(given);
  if (problem !== undefined) throw new UsageError([problem]);
  const url = new URL(withScheme(given.text));
  // `URL` drops a port that is its scheme's default, so only the original string shows
  // whether a port was given.
  const hasPort = /:\d+$/.test(authorityOf(given.text));
  if (!hasPort) url.port = DEFAULT_PORTS[url.protocol] ?? '';
  const href = `${url.protocol}//${credentials(url)}${url.host}`;
  return { origin: url.origin, href, authorization: authorizationOf(url) };
}

function withScheme(text: string): string {
  return text.includes('://') ? text : `http://${text}`;
}

/** Returns the host and port from a URL string, without user or path. */
function authorityOf(text: string): string {
  const [authority = ''] = text.replace(/^.*?:\/\//, '').split(/[/?#]/);
  return authority.slice(authority.lastIndexOf('@') + 1);
}

function credentials({ username, password }: URL): string {
  if (username === '' && password === '') return '';
  return password === '' ? `${username}@` : `${username}:${password}@`;
}

function authorizationOf(url: URL): string | undefined {
  if (url.username === '' && url.password === '') return undefined;
  const pair = `${decodePart(url.username)}:${decodePart(url.password)}`;
  return `Basic ${Buffer.from(pair).toString('base64')}`;
}

/**
 * Decodes one part of the credentials. Like curl, it leaves the string unchanged if a `%`
 * does not start an escape.
 */
function decodePart(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * Describes what is wrong with a variable. The value may contain a password, so the
 * message does not repeat it.
 */
function proxyProblem({ name, text }: Given): string | undefined {
  const url = URL.parse(withScheme(text));
  const isHttp = url !== null && ['http:', 'https:'].includes(url.protocol);
  if (isHttp && url.hostname !== '') return undefined;
  const state =
    url === null
      ? 'not a URL'
      : `a proxy of kind ${url.protocol.replace(':', '')}`;
  return `${name}: ${state}, which is not supported; give an http:// or https:// URL, or leave it unset`;
}

/** Returns a function that decides whether `no_proxy` exempts a URL. */
function readExemptions(text: string): (url: URL) => boolean {
  const matchers = text
    .split(/[\s,]+/)
    .filter((entry) => entry !== '')
    .map((entry) => readExemption(entry.toLowerCase()));
  return (url) => {
    const host = hostOf(url.hostname);
    const port = url.port === '' ? defaultPort(url.protocol) : url.port;
    return matchers.some((matches) => matches(host, port));
  };
}

type Exemption = (host: string, port: string) => boolean;

/**
 * Parses one entry: `*`, an address, a range such as `10.0.0.0/8`, or a name, each with
 * or without a port.
 */
function readExemption(entry: string): Exemption {
  if (entry === '*') return () => true;
  const { target, port } = splitPort(entry);
  const matchesHost = readRange(target) ?? readHost(target);
  return (host, hostPort) =>
    (port === undefined || port === hostPort) && matchesHost(host);
}

function splitPort(entry: string): {
  target: string;
  port: string | undefined;
} {
  const bracketed = /^\[([^\]]+)\](?::(\d+))?$/.exec(entry);
  if (bracketed !== null)
    return { target: bracketed[1] ?? '', port: bracketed[2] };
  // A bare IPv6 address contains colons itself.
  const isPlain = isIP(entry.split('/', 1)[0] ?? '') === 0;
  const [, name, port] = (isPlain && /^([^:]+):(\d+)$/.exec(entry)) || [];
  return name === undefined
    ? { target: entry, port: undefined }
    : { target: name, port };
}

/**
 * Returns a function that matches hosts in the range; undefined if the target is a
 * name.
 */
function readRange(target: string): ((host: string) => boolean) | undefined {
  const [address = '', bits] = target.split('/');
  const version = isIP(address);
  if (version === 0) return undefined;
  const bitsMax = version === 4 ? 32 : 128;
  const prefix = bits === undefined ? bitsMax : Number(bits);
  if (!Number.isInteger(prefix) || prefix < 0 || prefix > bitsMax)
    return () => false;
  const range = new BlockList();
  range.addSubnet(address, prefix, version === 4 ? 'ipv4' : 'ipv6');
  return (host) => {
    const hostVersion = isIP(host);
    return (
      hostVersion !== 0 &&
      range.check(host, hostVersion === 4 ? 'ipv4' : 'ipv6')
    );
  };
}

/**
 * Matches a domain and all its subdomains: `example.com`, `.example.com` and
 * `*.example.com` mean the same.
 */
function readHost(target: string): (host: string) => boolean {
  const name = target.replace(/^\*?\./, '').replace(/\.$/, '');
  if (name === '') return () => false;
  return (host) => host === name || host.endsWith(`.${name}`);
}

function hostOf(hostname: string): string {
  return hostname
    .toLowerCase()
    .replace(/^\[(.*)\]$/, '$1')
    .replace(/\.$/, '');
}

function defaultPort(protocol: string): string {
  return protocol === 'https:' ? '443' : '80';
}
