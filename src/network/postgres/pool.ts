/** Pools of connections that go by our settings, for the mirror's tables and for its queues. */
import { type ClientBase, Pool, type PoolConfig } from 'pg';
import type { PostgresAddress } from './postgres-client.ts';
import { applySettings, type SessionSettings } from './session-settings.ts';

/** How long a statement waits for a connection of the pool, or for a new one. */
const CONNECT_TIMEOUT_MS = 10_000;

export interface PoolOptions extends Pick<
  PoolConfig,
  'max' | 'idleTimeoutMillis' | 'types' | 'query_timeout'
> {
  readonly address: PostgresAddress;
  /** Set on each connection before it is used. */
  readonly settings: SessionSettings;
}

export function openPool({ address, settings, ...rest }: PoolOptions): Pool {
  const prepare = (client: ClientBase): Promise<void> =>
    applySettings(client, settings);
  const pool = new Pool({
    ...rest,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    keepAlive: true,
    Client: address.client,
    // oxlint-disable-next-line typescript/no-misused-promises -- the pool waits for it
    onConnect: prepare,
  });
  // The pool does not listen to a connection that is in use. Its statements report the
  // failure.
  pool.on('connect', (client) => client.on('error', () => undefined));
  return pool;
}
