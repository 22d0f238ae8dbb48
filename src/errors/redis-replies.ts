/** What the error replies of a Redis say about the connection that they came over. */

/** The old connection stays with the former master; a new one leads to the present one. */
const FORMER_MASTER = /^(?:READONLY|MASTERDOWN)\b/;
const BESIDE_MASTER = /^(?:NOREPLICAS|MISCONF)\b/;

/**
 * For ioredis: whether to connect anew. 2: the command, which was refused as a whole, is
 * sent again on the new connection. A master without replicas may be the present one:
 * there the caller hears of it.
 */
export function reconnectOnError({ message }: Error): boolean | 1 | 2 {
  if (FORMER_MASTER.test(message)) return 2;
  return BESIDE_MASTER.test(message);
}
