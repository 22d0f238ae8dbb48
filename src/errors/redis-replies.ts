/** Decides from a Redis error reply whether to reconnect. */

/**
 * Replies of a former master: the old connection stays with it, and a new one leads to
 * the present master.
 */
const FORMER_MASTER = /^(?:READONLY|MASTERDOWN)\b/;
const BESIDE_MASTER = /^(?:NOREPLICAS|MISCONF)\b/;

/**
 * Returns whether ioredis should reconnect. The value 2 also sends the command again on
 * the new connection, which is safe because it was refused as a whole. A master that has
 * no replicas or cannot save may be the present one: then ioredis reconnects, and the
 * caller gets the error.
 */
export function reconnectOnError({ message }: Error): boolean | 1 | 2 {
  if (FORMER_MASTER.test(message)) return 2;
  return BESIDE_MASTER.test(message);
}
