/**
 * The login of a Redis client. It is separate from the client, so that commands that do
 * not use Redis do not load the driver.
 */
import { decodeUrl } from '../secrets/secret-masking.ts';

/** The user and password that a client logs in with. */
export interface RedisLogin {
  readonly user: string | undefined;
  readonly password: string | undefined;
}

/** Reads the user and password of a URL. */
export function readRedisLogin({ username, password }: URL): RedisLogin {
  return {
    user: username === '' ? undefined : decodeUrl(username),
    password: password === '' ? undefined : decodeUrl(password),
  };
}
