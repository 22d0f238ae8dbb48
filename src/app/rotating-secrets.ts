/** The secrets of this process that are read again when a service refuses them. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { ReadTokens, Tokens } from '../api/access/tokens.ts';
import { type Config, isCertificatePair } from '../config/environment.ts';
import {
  isSecretOfFile,
  nameOfSecret,
  readSecretAgain,
} from '../config/secret-files.ts';
import type { SettingKey } from '../config/settings.ts';
import { PermanentError } from '../errors/errors.ts';
import type { Log } from '../logging/log.ts';
import type { PostgresLogin } from '../network/postgres/postgres-client.ts';
import { readRedisLogin, type RedisLogin } from '../network/redis-login.ts';
import {
  RotatingSecret,
  type SecretState,
} from '../network/rotating-secret.ts';
import {
  certificateOf,
  type ClientCertificate,
} from '../network/client-certificate.ts';
import type { NotifyAddress } from '../runs/notices.ts';
import type { SourceCredentials } from '../source/source-client.ts';

/**
 * How long a secret may be refused before the process ends: longer than a cluster takes
 * to update a changed secret in the files of its containers.
 */
const REFUSED_MAX_MS = 5 * 60_000;
const CHECK_MS = 10_000;
/**
 * How long the API's tokens are cached. It can be short, because reading two small files
 * is cheap.
 */
const TOKENS_MAX_AGE_MS = 1_000;

/**
 * Returns the secret part of a setting. The secret can be read again if the setting comes
 * from a file.
 * @param pick returns the part of the setting that is the secret; a change of anything
 *   else, such as a host, takes effect at the next start
 */
function secretOf<Key extends 'databaseUrl' | 'redisUrl', Value extends object>(
  config: Config,
  key: Key,
  setting: NonNullable<Config[Key]>,
  pick: (setting: NonNullable<Config[Key]>) => Value,
): RotatingSecret<Value> {
  const readAgain = (): Value | undefined => {
    const again = readSecretAgain(config, key);
    return again === undefined ? undefined : pick(again);
  };
  return new RotatingSecret<Value>(pick(setting), {
    name: nameOfSecret(config, key),
    read: isSecretOfFile(config, key) ? readAgain : undefined,
  });
}

/**
 * Returns the login of the configured database; undefined for the embedded database,
 * which manages its own password.
 */
export function openDatabaseLogin(
  config: Config,
): RotatingSecret<PostgresLogin> | undefined {
  const { databaseUrl } = config;
  if (databaseUrl === undefined) return undefined;
  return secretOf(config, 'databaseUrl', databaseUrl, ({ target }) => ({
    user: target.user,
    password: target.password,
  }));
}

/**
 * Returns the address of notices and the key that signs them; undefined if none are sent.
 */
export function openNotifyAddress(
  config: Config,
): RotatingSecret<NotifyAddress> | undefined {
  const { notifyUrl, notifySecret } = config;
  if (notifyUrl === undefined) return undefined;
  let last: NotifyAddress = { href: notifyUrl.href, secret: notifySecret };
  function read(): NotifyAddress {
    last = {
      href: readSecretAgain(config, 'notifyUrl')?.href ?? last.href,
      secret: readSecretAgain(config, 'notifySecret') ?? last.secret,
    };
    return last;
  }

  return secretsOfFiles(config, ['notifyUrl', 'notifySecret'], last, read);
}

/** Returns the login of the configured Redis; undefined if there is none. */
export function openRedisLogin(
  config: Config,
): RotatingSecret<RedisLogin> | undefined {
  const { redisUrl } = config;
  if (redisUrl === undefined) return undefined;
  return secretOf(config, 'redisUrl', redisUrl, readRedisLogin);
}

/**
 * Returns the Authorization header, the additional headers and the client certificate.
 * Each is read again if it comes from a file.
 */
export function openSourceCredentials(
  config: Config,
): RotatingSecret<SourceCredentials> {
  const { sourceAuthorization: authorization, sourceHeaders: headers } = config;
  const { sourceClientCert, sourceClientKey } = config;
  const certificate = certificateOf(sourceClientCert, sourceClientKey);
  let last: SourceCredentials = { authorization, headers, certificate };
  /** If a file cannot be read now, its last value stays in use. */
  function read(): SourceCredentials {
    last = {
      authorization:
        readSecretAgain(config, 'sourceAuthorization') ?? last.authorization,
      headers: readSecretAgain(config, 'sourceHeaders') ?? last.headers,
      certificate: readCertificateAgain(config, last.certificate),
    };
    return last;
  }

  const keys = [
    'sourceAuthorization',
    'sourceHeaders',
    'sourceClientCert',
    'sourceClientKey',
  ] as const;
  return secretsOfFiles(config, keys, last, read);
}

/** Whether the source is sent any credentials that it could refuse. */
export function hasSourceCredentials(config: Config): boolean {
  const { sourceUrl, sourceAuthorization, sourceHeaders } = config;
  return (
    sourceAuthorization !== undefined ||
    sourceHeaders !== undefined ||
    config.sourceClientCert !== undefined ||
    (sourceUrl !== undefined && sourceUrl.username + sourceUrl.password !== '')
  );
}

/**
 * Returns the pair that the files now contain. The files are replaced one after the
 * other, so for a moment they may contain halves of two pairs. In that case, `last` stays
 * in use.
 */
function readCertificateAgain(
  config: Config,
  last: ClientCertificate | undefined,
): ClientCertificate | undefined {
  const cert = readSecretAgain(config, 'sourceClientCert') ?? last?.cert;
  const key = readSecretAgain(config, 'sourceClientKey') ?? last?.key;
  if (cert === undefined || key === undefined) return last;
  return isCertificatePair(cert, key) ? { cert, key } : last;
}

/** Combines several settings, some of which may come from files, into one secret. */
function secretsOfFiles<Value extends object>(
  config: Config,
  keys: readonly SettingKey[],
  first: Value,
  read: () => Value,
): RotatingSecret<Value> {
  const given = keys.filter((key) => config[key] !== undefined);
  const names = given.map((key) => nameOfSecret(config, key));
  return new RotatingSecret<Value>(first, {
    name: names.join(' and ') || 'the login in SOURCE_URL',
    read: given.some((key) => isSecretOfFile(config, key)) ? read : undefined,
  });
}

/**
 * Returns the tokens of the API. No service refuses them, so their files are read again
 * when a request is checked, at most once a second. If a file has no usable token, its
 * last one stays in use.
 * @returns undefined if no token is set
 */
export function openApiTokens(
  config: Config,
  log: Pick<Log, 'info' | 'warn'>,
  nowMs = () => performance.now(),
): ReadTokens | undefined {
  const { apiToken, apiReadToken } = config;
  if (apiToken === undefined) return undefined;

  let tokens: Tokens = { write: apiToken, read: apiReadToken };
  let readAtMs = nowMs();
  let wasShared = false;
  return () => {
    if (nowMs() - readAtMs < TOKENS_MAX_AGE_MS) return tokens;

    readAtMs = nowMs();
    const write = readSecretAgain(config, 'apiToken') ?? tokens.write;
    const read = readSecretAgain(config, 'apiReadToken') ?? tokens.read;
    const isSame = write === tokens.write && read === tokens.read;
    const isShared = write === read;
    // With the same token for both roles, a client that may only read could start runs,
    // so the new tokens are not used.
    if (isShared && !wasShared)
      log.warn(
        {},
        'API_TOKEN and API_READ_TOKEN are the same; the previous tokens ' +
          'stay in use',
      );
    wasShared = isShared;
    if (isSame || isShared) return tokens;

    tokens = { write, read };
    log.info({}, 'The API tokens have changed');
    return tokens;
  };
}

/** A secret without which the process can do nothing. */
export interface NeededSecret {
  readonly secret: SecretState;
  /** The part of the readiness check that fails while the secret is refused. */
  readonly part: 'database' | 'queues' | 'objects' | 'source';
  /** The service that the secret gives access to, such as `the database at db:5432`. */
  readonly what: string;
  /** Tries the secret once more, in case nothing else is using it at the moment. */
  readonly prove: () => Promise<void>;
}

/** How the secrets of a process are watched. */
export interface WatchOptions {
  /** How long a secret may be refused before the process ends. */
  readonly refusedMaxMs?: number;
  readonly checkMs?: number;
  /**
   * The parts that the process can do without. While one of their secrets is refused, the
   * process reports that it is not ready, but keeps running.
   */
  readonly canDoWithout?: readonly NeededSecret['part'][];
}

/**
 * Throws while a secret that the part needs is refused.
 * @throws PermanentError `SECRET_REFUSED`
 */
export function requireAccepted(
  needed: readonly NeededSecret[],
  part: NeededSecret['part'],
): void {
  for (const one of needed) {
    if (one.part !== part) continue;
    const refusedMs = one.secret.refusedForMs();
    if (refusedMs !== undefined) throw refusedError(one, refusedMs);
  }
}

/**
 * Waits until the process is stopped.
 * @throws PermanentError `SECRET_REFUSED` once a secret has been refused for too long,
 *   however often its file was read again
 */
export async function untilStoppedOrRefused(
  needed: readonly NeededSecret[],
  { log, signal }: { readonly log: Log; readonly signal: AbortSignal },
  {
    refusedMaxMs = REFUSED_MAX_MS,
    checkMs = CHECK_MS,
    canDoWithout = [],
  }: WatchOptions = {},
): Promise<void> {
  while (!signal.aborted) {
    await sleep(checkMs, undefined, { signal }).catch(() => undefined);
    // A stopped process ends without an error, even while a secret is refused.
    if (signal.aborted) return;
    for (const one of needed) {
      if (one.secret.refusedForMs() === undefined) continue;
      await one
        .prove()
        .catch((error: unknown) =>
          log.error({ err: error }, 'A secret is refused'),
        );
      const refusedMs = one.secret.refusedForMs();
      if (refusedMs === undefined || canDoWithout.includes(one.part)) continue;
      if (refusedMs >= refusedMaxMs) throw refusedError(one, refusedMs);
    }
  }
}

function refusedError(
  { secret, what }: NeededSecret,
  refusedMs: number,
): PermanentError {
  const seconds = Math.round(refusedMs / 1_000);
  return new PermanentError(
    `Cannot use ${what}: it has refused ${secret.name} for ${seconds} s; ` +
      'put the secret there that it accepts now',
    { code: 'SECRET_REFUSED', meta: { secret: secret.name, refusedMs } },
  );
}
