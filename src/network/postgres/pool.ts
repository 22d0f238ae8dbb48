/**
 * Connection pools whose sessions use our settings, for the mirror's tables and for its
 * queues.
 */
import { type ClientBase, Pool, type PoolClient, type PoolConfig } from 'pg';
import type { PostgresAddress } from './postgres-client.ts';
import { applySettings, type SessionSettings } from './plain-settings.ts';

/** How long a statement waits for a free or new connection from the pool. */
const CONNECT_TIMEOUT_MS = 10_000;

export interface PoolOptions extends Pick<
  PoolConfig,
  'max' | 'idleTimeoutMillis' | 'types' | 'query_timeout'
> {
  readonly address: PostgresAddress;
  /** The settings that are applied to each connection before it is used. */
  readonly settings: SessionSettings;
}

export function openPool({ address, settings, ...rest }: PoolOptions): Pool {
  const prepare = (client: ClientBase): Promise<void> =>
    applySettings(client, settings);
  const pool = new LoginPool(address, {
    ...rest,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    keepAlive: true,
    Client: address.client,
    // oxlint-disable-next-line typescript/no-misused-promises -- the pool waits for it
    onConnect: prepare,
  });
  // The pool does not listen for errors on a connection that is in use. The connection's
  // statements report the failure.
  pool.on('connect', (client) => {
    client.on('error', () => undefined);
    address.accepted();
  });
  return pool;
}

type Taken = (
  error: Error | undefined,
  client: PoolClient | undefined,
  release: (error?: Error | boolean) => void,
) => void;

/**
 * A pool whose new connections use a login that may change. Existing connections stay
 * open, because a server does not close them when a password changes.
 */
class LoginPool extends Pool {
  readonly #address: PostgresAddress;

  constructor(address: PostgresAddress, config: PoolConfig) {
    super(config);
    this.#address = address;
  }

  override connect(): Promise<PoolClient>;
  override connect(taken: Taken): void;
  override connect(taken?: Taken): Promise<PoolClient> | void {
    const client = this.#address.withLogin(() => super.connect());
    if (taken === undefined) return client;
    client.then(
      (one) => taken(undefined, one, (error) => one.release(error)),
      (error: unknown) => taken(error as Error, undefined, () => undefined),
    );
  }
}
