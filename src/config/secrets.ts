/**
 * Finds the parts of a configuration that must never be shown (settings, parts of URLs,
 * other libraries' keys), and shows the configuration without them.
 */
import { decodeUrl } from '../secrets/secret-masking.ts';
import { PostgresUrl } from '../network/postgres/postgres-url.ts';
import type { Config } from './environment.ts';
import { SETTINGS, type Setting } from './settings.ts';

const PROXY_NAME = /^(?:https?|all)_proxy$/i;
const AMBIENT_SECRET = /(?:SECRET|TOKEN|PASSWORD|_HEADERS)/;
/**
 * Minimum length at which NOTIFY_URL's path, a segment of it, or a URL parameter is
 * treated as a secret. Most chat services use the path as the secret; shorter parts are
 * ordinary words.
 */
const PART_CHARACTERS_MIN = 8;

export function secretsOf(config: Config): readonly string[] {
  const { notifyUrl, sourceUrl, ambient } = config;
  const path = notifyUrl?.pathname ?? '';
  // Gateways accept keys as URL parameters.
  const parameters = [notifyUrl, sourceUrl].flatMap((url) => [
    ...(url?.searchParams.values() ?? []),
  ]);
  const secrets = [
    ...SETTINGS.flatMap(({ key, secret }) => {
      const value: unknown = config[key];
      if (value instanceof URL) return secretsOfUrl(value);
      if (value instanceof PostgresUrl) return secretsOfPostgres(value);
      return secret === true && typeof value === 'string' ? value : [];
    }),
    ...Object.values(config.sourceHeaders ?? {}),
    ...[path, ...path.split('/'), ...parameters].filter(
      (part) => part.length >= PART_CHARACTERS_MIN,
    ),
    ...Object.entries(ambient).flatMap(([name, value]) => [
      ...(AMBIENT_SECRET.test(name) ? [value, ...headerValues(value)] : []),
      ...(URL.canParse(value) ? secretsOfUrl(new URL(value)) : []),
      ...(PROXY_NAME.test(name) ? secretsOfProxy(value) : []),
    ]),
  ];
  return secrets.filter((secret) => secret !== '');
}

/**
 * Returns a URL's password, both alone and as sent in Basic authentication. Passwords of
 * URLs inside its parameters (`?endpoint=`) are included.
 */
export function secretsOfUrl(url: URL): readonly string[] {
  const inner = [...url.searchParams.values()].filter((value) =>
    URL.canParse(value),
  );
  const nested = inner.flatMap((value) => secretsOfUrl(new URL(value)));
  const user = decodeUrl(url.username);
  const password = decodeUrl(url.password);
  // A password that equals the user, host or database next to it is an ordinary word, and
  // masking it would not protect anything.
  const beside = [
    user,
    url.hostname,
    url.pathname.slice(1),
    url.protocol.replace(/(?:ql)?:$/, ''),
  ];
  if (password === '' || beside.includes(password)) return nested;
  return [password, url.password, `${user}:${password}`, ...nested];
}

/**
 * Like `secretsOfUrl`, but for Postgres URLs, which may have several hosts or none and
 * cannot always be parsed as a `URL`.
 */
function secretsOfPostgres({ target }: PostgresUrl): readonly string[] {
  const { user = '', password = '', database, hosts } = target;
  const beside = [user, database, 'postgres', ...hosts.map(({ host }) => host)];
  if (password === '' || beside.includes(password)) return [];
  return [password, encodeURIComponent(password), `${user}:${password}`];
}

/** A proxy may be written without its scheme: `user:password@proxy:3128`. */
function secretsOfProxy(text: string): readonly string[] {
  const url = URL.parse(text.includes('://') ? text : `http://${text}`);
  return url === null ? [] : secretsOfUrl(url);
}

/** Returns the values of headers in OpenTelemetry's format: `api-key=…,other=…`. */
function headerValues(list: string): readonly string[] {
  return list
    .split(',')
    .flatMap((pair) =>
      pair.includes('=') ? [pair.slice(pair.indexOf('=') + 1)] : [],
    );
}

/**
 * One setting as the console and `config` show it. It never contains the value of a
 * secret.
 */
export interface ShownSetting extends Pick<Setting, 'name' | 'help'> {
  readonly value: string | null;
  readonly isSecret: boolean;
  readonly origin: string;
}

const MASK = '***';

export function shownSettings(config: Config): readonly ShownSetting[] {
  return SETTINGS.map(({ name, key, help, secret: isSecret = false }) => {
    const value: unknown = config[key];
    const text =
      value instanceof URL
        ? withoutSecrets(value)
        : (config.texts[key] ?? null);
    const isMasked = isSecret && value !== undefined;
    return {
      name,
      value: isMasked ? MASK : text,
      isSecret,
      origin: config.origins[key],
      help,
    };
  });
}

/**
 * Masks credentials in a URL. Users put keys in URLs, and in the endpoint parameter of an
 * object store's URL.
 */
function withoutSecrets(url: URL): string {
  const shown = new URL(url);
  if (shown.username !== '') shown.username = MASK;
  if (shown.password !== '') shown.password = MASK;
  const isWeb = url.protocol.startsWith('http');
  for (const [name, value] of url.searchParams) {
    if (isWeb) shown.searchParams.set(name, MASK);
    else if (name === 'endpoint')
      shown.searchParams.set(name, withoutSecrets(new URL(value)));
  }
  return shown.href;
}
