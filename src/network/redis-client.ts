/**
 * Redis clients for all adapters in this process. Each connection logs in with the
 * current user and password, which are read again when Redis refuses them.
 */
import { Redis, type RedisOptions } from 'ioredis';
import type { RedisLogin } from './redis-login.ts';
import type { RotatingSecret } from './rotating-secret.ts';

/** Options of a client whose replies have the shapes of the older RESP protocol. */
type PlainOptions = Omit<RedisOptions, 'replyMapping'>;

/**
 * Replies that refuse the user or password. ioredis adds its own prefix to a reply to its
 * check of a new connection.
 */
const LOGIN_REFUSED =
  /^(?:Ready check failed: )?(?:WRONGPASS|NOAUTH|ERR (?:AUTH|invalid password))\b/;

/** Whether an error means that Redis refused the user or password. */
export function isLoginRefused(error: unknown): boolean {
  return error instanceof Error && LOGIN_REFUSED.test(error.message);
}

/**
 * Opens a client whose connections log in with a secret that may change. Its duplicates,
 * which BullMQ creates for its workers, do the same.
 * @param login overrides the user and password of the URL; undefined if they never change
 */
export function openRedis(
  url: string,
  login: RotatingSecret<RedisLogin> | undefined,
  options: PlainOptions,
): Redis {
  if (login === undefined) return new Redis(url, options);

  const redis = new Redis(url, { ...options, lazyConnect: true });
  const connect = redis.connect.bind(redis);
  /** The login that the current connection was opened with. */
  let sent = login.current;

  // ioredis calls this for the first connection and for each reconnection.
  redis.connect = (callback) => {
    sent = login.current;
    const { user, password } = sent;
    Object.assign(redis.options, { username: user, password });
    return connect(callback);
  };
  redis.duplicate = (override: PlainOptions = {}) =>
    openRedis(url, login, {
      ...redis.options,
      lazyConnect: options.lazyConnect,
      ...override,
    });
  redis.on('error', (error) => {
    if (isLoginRefused(error)) login.renew(sent);
  });
  // A connection is ready once Redis has accepted its login and responded.
  redis.on('ready', () => login.accept());

  if (options.lazyConnect !== true) redis.connect().catch(() => undefined);
  return redis;
}

/**
 * Opens an extra connection with a client's login, and closes it. If the login is
 * refused and its file contains a different login by now, tries that login.
 * @throws Redis's refusal, or the connection error
 */
export async function proveRedisLogin(
  redis: Redis,
  login: RotatingSecret<RedisLogin> | undefined,
): Promise<void> {
  for (;;) {
    const sent = login?.current;
    try {
      await connectOnce(redis);
      return;
    } catch (error) {
      const isOther = login !== undefined && login.current !== sent;
      if (!isLoginRefused(error) || !isOther) throw error;
    }
  }
}

async function connectOnce(redis: Redis): Promise<void> {
  const client = redis.duplicate({
    lazyConnect: true,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
  });
  // The reason arrives as an event; the failed call says only that the connection is
  // closed.
  let reason: Error | undefined;
  client.on('error', (error) => {
    reason = error;
  });
  try {
    await client.connect();
  } catch (error) {
    throw reason ?? error;
  } finally {
    client.disconnect();
  }
}
