/** Decides whether to reconnect after a Redis error reply. */

/**
 * Replies from a former master. The existing connection stays with it; a new one reaches
 * the current master.
 */
const FORMER_MASTER = /^(?:READONLY|MASTERDOWN)\b/;
const BESIDE_MASTER = /^(?:NOREPLICAS|MISCONF)\b/;

/**
 * Returns whether ioredis should reconnect. The value 2 also resends the command on the
 * new connection, which is safe because it was refused as a whole. A master without
 * replicas, or one that cannot save, may still be the current one: ioredis then
 * reconnects, and the caller gets the error.
 */
export function reconnectOnError({ message }: Error): boolean | 1 | 2 {
  if (FORMER_MASTER.test(message)) return 2;
  return BESIDE_MASTER.test(message);
}
