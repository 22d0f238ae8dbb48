/**
 * Distinguishes errors returned by a reachable Redis from a Redis that cannot be reached.
 */
import type { Redis } from 'ioredis';
import {
  errorCode,
  PermanentError,
  UnreachableError,
} from '../errors/errors.ts';
import { classifyErrno } from '../errors/faults.ts';
import { isLoginRefused } from '../network/redis-client.ts';
import type { RedisLogin } from '../network/redis-login.ts';
import type { RotatingSecret } from '../network/rotating-secret.ts';

/** The user lacks a permission. */
const NO_RIGHT = /^NOPERM\b/;
/**
 * A former master, or a master without its replicas or its disk, can be read but accepts
 * no writes.
 */
const NO_WRITES = /^(?:READONLY|MASTERDOWN|NOREPLICAS|MISCONF|OOM|LOADING)\b/;
const PROBE_TTL_MS = 60_000;

/** Classifies why a connection could not be made, or why a command failed. */
export function redisError(
  url: string,
  error: unknown,
  login?: RotatingSecret<RedisLogin>,
): Error {
  if (error instanceof PermanentError || error instanceof UnreachableError)
    return error;
  const { host } = new URL(url);
  const state = error instanceof Error ? error.message : String(error);
  const details = { meta: { host }, cause: error };
  if (isLoginRefused(error) || NO_RIGHT.test(state)) {
    const advice =
      login?.isFromFile === true && isLoginRefused(error)
        ? login.advice
        : 'check its user, password and permissions';
    return new PermanentError(
      `Cannot use Redis at ${host}: it refuses the user in REDIS_URL ` +
        `(${state}); ${advice}`,
      { code: 'REDIS_REFUSED', ...details },
    );
  }
  if (classifyErrno(errorCode(error)) === 'certificate')
    return new PermanentError(
      `Cannot use Redis at ${host}: its certificate is not accepted ` +
        `(${state}); name the file of its certificate authority in ` +
        'NODE_EXTRA_CA_CERTS',
      { code: 'REDIS_TLS', ...details },
    );
  if (NO_WRITES.test(state))
    return new UnreachableError(
      `Cannot write to Redis at ${host}: ${state}; check its replication ` +
        'and its disk',
      { code: 'REDIS_TAKES_NO_WRITES', ...details },
    );
  return new UnreachableError(
    `Cannot reach Redis at ${host}: ${errorCode(error)}; check REDIS_URL`,
    { code: 'REDIS_UNREACHABLE', ...details },
  );
}

/**
 * Requires a single server.
 * @param info the output of INFO
 * @throws PermanentError `REDIS_MODE` for a cluster or a Sentinel
 */
export function requireSingle(url: string, info: string): void {
  const mode = /^redis_mode:(\w+)/m.exec(info)?.[1] ?? 'standalone';
  const lines: Readonly<Record<string, string>> = {
    cluster:
      'it is part of a cluster, and queues cannot be spread over one; ' +
      'use a server without cluster mode',
    sentinel:
      'it is a Sentinel; point REDIS_URL at the master, or at an address that follows it',
  };
  const line = lines[mode];
  if (line === undefined) return;
  const { host } = new URL(url);
  throw new PermanentError(`Cannot use Redis at ${host}: ${line}`, {
    code: 'REDIS_MODE',
    meta: { host, mode },
  });
}

/**
 * Checks that Redis accepts writes, by writing a key that soon expires. A successful read
 * proves nothing, because a replica, or a master that has lost its replicas, can still be
 * read.
 * @throws as `redisError`
 */
export async function requireWrites(
  redis: Redis,
  url: string,
  prefix: string,
  login?: RotatingSecret<RedisLogin>,
): Promise<void> {
  try {
    await redis.set(`${prefix}:probe`, '1', 'PX', PROBE_TTL_MS);
  } catch (error) {
    throw redisError(url, error, login);
  }
}
