/**
 * Parses a Postgres URL as libpq does, with several hosts, sockets and every parameter,
 * because psql and cloud providers' consoles follow libpq. WHATWG's URL supports neither
 * a list of hosts nor an empty host.
 */
import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

export interface PostgresHost {
  /** A name or an address, or the folder of a Unix socket, which begins with `/`. */
  readonly host: string;
  readonly port: number;
}

const SSL_MODES = [
  'disable',
  'allow',
  'prefer',
  'require',
  'verify-ca',
  'verify-full',
] as const;
export type SslMode = (typeof SSL_MODES)[number];

/** One database to connect to. libpq's defaults apply to undefined fields. */
export interface PostgresTarget {
  /** The hosts, in the order they are tried; empty means the local socket or port. */
  readonly hosts: readonly PostgresHost[];
  readonly user: string | undefined;
  readonly password: string | undefined;
  readonly database: string | undefined;
  readonly sslMode: SslMode;
  /** The CAs that the server's certificate is checked against: a file, or `system`. */
  readonly sslRootCert: string | undefined;
  /** Files with the client's own certificate and key. */
  readonly sslCert: string | undefined;
  readonly sslKey: string | undefined;
  /**
   * Whether TLS starts immediately, without first asking the server whether it supports
   * it.
   */
  readonly isSslDirect: boolean;
  readonly bindsChannel: boolean;
  /**
   * The `options` parameter, sent when connecting and read by gateways such as Neon's.
   */
  readonly options: string | undefined;
  /** Whether the connection must lead to the server that accepts writes. */
  readonly wantsPrimary: boolean;
}

/** A URL that has been accepted. */
export class PostgresUrl {
  /** The URL as given, including its password. */
  readonly href: string;
  readonly target: PostgresTarget;

  constructor(href: string, target: PostgresTarget) {
    this.href = href;
    this.target = target;
  }

  get place(): string {
    return placeOf(this.target);
  }
}

/**
 * Every parameter that libpq knows, and some that other tools add but that have no effect
 * here.
 */
const KNOWN =
  /^(?:host|port|dbname|user|password|connect_timeout|client_encoding|options|application_name|fallback_application_name|keepalives(?:_idle|_interval|_count)?|tcp_user_timeout|sslmode|ssl|sslnegotiation|sslcompression|sslcert|sslkey|sslrootcert|sslsni|ssl_min_protocol_version|ssl_max_protocol_version|gssencmode|channel_binding|target_session_attrs|load_balance_hosts|service|servicefile|uselibpqcompat|pgbouncer)$/;
/**
 * Parameters for features that are not supported here. Ignoring them would mislead the
 * user.
 */
const NOT_DONE =
  /^(?:hostaddr|passfile|replication|require_auth|requirepeer|sslpassword|sslcrl|sslcrldir|sslcertmode|sslkeylogfile|krbsrvname|gsslib|gssdelegation|scram_client_key|scram_server_key|oauth_.*)$/;
export const DEFAULT_PORT = 5432;

type Parameters = Readonly<Record<string, string>>;

/**
 * Parses a URL.
 * @returns the database in the URL, or one line that describes the problem and says what
 *   to write instead
 */
export function readPostgresUrl(text: string): PostgresTarget | string {
  const foreign = /^(?:jdbc:|(postgres(?:ql)?)\+\w+:)/.exec(text);
  if (foreign !== null)
    return (
      `begins with ${foreign[0]}, which is for another library; begin it ` +
      'with postgres:'
    );
  const body = /^postgres(?:ql)?:\/\/(.*)$/s.exec(text)?.[1];
  if (body === undefined) return 'does not begin with postgres://';
  const parts = readParts(body);
  if (typeof parts === 'string') return parts;
  const withService = addService(parts);
  return typeof withService === 'string'
    ? withService
    : readTarget(withService);
}

/**
 * Splits a URL into parameters. As in libpq, the parts before the query are treated as
 * parameters too.
 */
function readParts(body: string): Parameters | string {
  // As in libpq, the user and password end at the first @ if it comes before any slash.
  const end = body.search(/[@/]/);
  const hasUser = body[end] === '@';
  const credentials = hasUser ? body.slice(0, end) : '';
  const rest = hasUser ? body.slice(end + 1) : body;
  const colon = credentials.indexOf(':');
  const user = colon === -1 ? credentials : credentials.slice(0, colon);
  const password = colon === -1 ? '' : credentials.slice(colon + 1);
  const [, authority = '', path = '', query = ''] =
    /^([^/?]*)(?:\/([^?]*))?(?:\?(.*))?$/s.exec(rest) ?? [];
  const misread = findMisread(hasUser, `${authority}/${path}`);
  if (misread !== undefined) return misread;
  const ends = splitHosts(authority);
  if (ends === undefined) return 'has a host or a port that cannot be read';
  const given = {
    user: decode(user),
    password: decode(password),
    dbname: decode(path),
    host: ends.hosts.join(','),
    port: ends.ports.join(','),
  };
  const wrong = Object.entries(given).find(([, value]) => value === undefined);
  if (wrong !== undefined)
    return (
      `has a % in its ${wrong[0]} that does not begin an escape; write it ` +
      'as %25'
    );
  const parameters = readQuery(query);
  if (typeof parameters === 'string') return parameters;
  const set = Object.entries(given).filter(([, value]) => value !== '');
  return { ...(Object.fromEntries(set) as Parameters), ...parameters };
}

/**
 * Detects an unescaped slash or @ in a password. It ends the password too early, so that
 * the rest is taken for hosts.
 */
function findMisread(hasUser: boolean, rest: string): string | undefined {
  if (!rest.includes('@')) return undefined;
  return hasUser
    ? 'has more than one @; in its user and password, write it as %40'
    : 'has a / in its user or password; write it as %2F';
}

function splitHosts(
  authority: string,
): { hosts: string[]; ports: string[] } | undefined {
  const hosts: string[] = [];
  const ports: string[] = [];
  if (authority === '') return { hosts, ports };
  for (const one of authority.split(',')) {
    const [, bracketed, name, port = ''] =
      /^(?:\[([0-9a-fA-F:.%]+)\]|([^:[\]]*))(?::(\d*))?$/.exec(one) ?? [];
    const host = decode(bracketed ?? name ?? '');
    if ((bracketed ?? name) === undefined || host === undefined)
      return undefined;
    hosts.push(host);
    ports.push(port);
  }
  return ports.every((port) => port === '')
    ? { hosts, ports: [] }
    : { hosts, ports };
}

function readQuery(query: string): Parameters | string {
  const parameters: Record<string, string> = {};
  for (const pair of query.split('&')) {
    if (pair === '') continue;
    const equals = pair.indexOf('=');
    const name = decode(equals === -1 ? pair : pair.slice(0, equals));
    const value = decode(equals === -1 ? '' : pair.slice(equals + 1));
    if (name === undefined || value === undefined)
      return (
        'has a % in its parameters that does not begin an escape; write it ' +
        'as %25'
      );
    if (NOT_DONE.test(name))
      return `has the parameter ${name}, which is not supported; remove it`;
    if (!KNOWN.test(name))
      return (
        `has the parameter ${shown(name)}, which Postgres does not know; ` +
        'remove it'
      );
    parameters[name] = value;
  }
  return parameters;
}

/** Quotes a name that a user wrote, shortened and made printable. */
function shown(name: string): string {
  return JSON.stringify(name.slice(0, 40));
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/**
 * Adds the lines of `[service]` in pg_service.conf as defaults; parameters of the URL
 * take precedence.
 */
function addService(given: Parameters): Parameters | string {
  const { service, servicefile } = given;
  if (service === undefined) return given;
  const path = servicefile ?? join(homedir(), '.pg_service.conf');
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch {
    return `names the service ${shown(service)}, but ${path} cannot be read; write servicefile=`;
  }
  const found = readSection(text, service);
  if (found === undefined)
    return `names the service ${shown(service)}, which ${path} does not contain`;
  const wrong = Object.keys(found).find((name) => !KNOWN.test(name));
  if (wrong !== undefined)
    return `names the service ${shown(service)}, whose ${shown(wrong)} is not supported`;
  return { ...found, ...given };
}

function readSection(text: string, service: string): Parameters | undefined {
  let found: Record<string, string> | undefined;
  let isInside = false;
  for (const line of text.split(/\r?\n/).map((one) => one.trim())) {
    if (line === '' || line.startsWith('#')) continue;
    if (line.startsWith('[')) {
      isInside = line === `[${service}]`;
      if (isInside) found ??= {};
    } else if (isInside && found !== undefined) {
      const equals = line.indexOf('=');
      found[line.slice(0, equals).trim()] = line.slice(equals + 1).trim();
    }
  }
  return found;
}

function readTarget(given: Parameters): PostgresTarget | string {
  const hosts = readHosts(given);
  if (typeof hosts === 'string') return hosts;
  const mode = readSslMode(given, hosts);
  if (mode === undefined)
    return `has an sslmode that Postgres does not know; give ${SSL_MODES.join(', ')}`;
  const attributes = given['target_session_attrs'];
  if (attributes !== undefined && !WRITABLE.has(attributes))
    return (
      `has target_session_attrs=${shown(attributes)}, but the mirror has ` +
      'to write; use read-write or remove it'
    );
  const root = given['sslrootcert'];
  if (root === 'system' && mode !== 'verify-full')
    return 'has sslrootcert=system, which needs sslmode=verify-full';
  const isSslDirect = given['sslnegotiation'] === 'direct';
  if (isSslDirect && !/^(?:require|verify-)/.test(mode))
    return 'has sslnegotiation=direct, which needs sslmode=require or more';
  return {
    hosts,
    user: given['user'],
    password: given['password'],
    database: given['dbname'],
    sslMode: mode,
    sslRootCert: root,
    sslCert: given['sslcert'],
    sslKey: given['sslkey'],
    isSslDirect,
    bindsChannel: given['channel_binding'] === 'require',
    options: given['options'],
    wantsPrimary: hosts.length > 1 || isPrimaryWanted(attributes),
  };
}

/**
 * Includes `any`, because among several servers the mirror always looks for the one that
 * accepts writes.
 */
const WRITABLE = new Set(['any', 'read-write', 'primary']);

function isPrimaryWanted(attributes: string | undefined): boolean {
  return attributes === 'read-write' || attributes === 'primary';
}

function readHosts(given: Parameters): PostgresHost[] | string {
  const names = split(given['host']);
  const ports = split(given['port']);
  if (ports.length > 1 && ports.length !== names.length)
    return (
      'has a different number of ports than hosts; give each host its own ' +
      'port, or one for all'
    );
  const numbers = ports.map((port) =>
    port === '' ? DEFAULT_PORT : Number(port),
  );
  const isWrong = numbers.some(
    (port) => !Number.isInteger(port) || port < 1 || port > 65_535,
  );
  if (isWrong) return 'has an invalid port; give a number from 1 to 65535';
  // A port without a host means this machine.
  const all = names.length === 0 && numbers.length > 0 ? [''] : names;
  return all.map((host, at) => ({
    host,
    port: numbers[at] ?? numbers[0] ?? DEFAULT_PORT,
  }));
}

function split(list: string | undefined): string[] {
  return list === undefined || list === '' ? [] : list.split(',');
}

/**
 * Returns the sslmode; libpq's default is `prefer`. JDBC writes `ssl=true` for
 * `sslmode=require`.
 */
function readSslMode(
  given: Parameters,
  hosts: readonly PostgresHost[],
): SslMode | undefined {
  const written =
    given['sslmode'] ?? (given['ssl'] === 'true' ? 'require' : undefined);
  // node-postgres's own name for the mode that libpq calls `require`.
  const word = written === 'no-verify' ? 'require' : (written ?? 'prefer');
  const mode = SSL_MODES.find((known) => known === word);
  const isLocal = hosts.length > 0 && hosts.every(({ host }) => isSocket(host));
  return isLocal && mode !== undefined ? 'disable' : mode;
}

/** Whether the host is a Unix socket; `@name` is an abstract socket. */
export function isSocket(host: string): boolean {
  return host.startsWith('/') || host.startsWith('@');
}

/** Describes the hosts for messages, without user and password. */
export function placeOf({ hosts }: PostgresTarget): string {
  if (hosts.length === 0) return 'this machine';
  return hosts
    .map(({ host, port }) => {
      if (host === '') return `this machine, port ${port}`;
      return isSocket(host)
        ? host
        : `${host.includes(':') ? `[${host}]` : host}:${port}`;
    })
    .join(', ');
}
