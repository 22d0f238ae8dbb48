/**
 * Clients of Postgres for every pool of this process: connected by libpq's rules, and led to the
 * server that takes writes if there are several.
 */
import { Socket } from 'node:net';
import { Client, type ClientConfig, Connection } from 'pg';
import { UnreachableError } from '../../errors/errors.ts';
import {
  placeOf,
  type PostgresHost,
  type PostgresTarget,
  readPostgresUrl,
} from './postgres-url.ts';
import { hostsOf, openTransport } from './transport.ts';

/** Over all hosts of a URL, which share it. */
const CONNECT_TIMEOUT_MS = 10_000;

type ClientClass = new (config?: ClientConfig) => Client;

/** A database that clients are opened to. It remembers which of its hosts takes writes. */
export class PostgresAddress {
  readonly target: PostgresTarget;
  /** For people: host and port, without user and password. */
  readonly place: string;
  /** The class of which a pool makes its clients. */
  readonly client: ClientClass;
  #primary: PostgresHost | undefined;

  constructor(target: PostgresTarget) {
    this.target = target;
    this.place = placeOf(target);
    this.client = clientOf(this);
  }

  /** Opens a socket to the first host that answers, or to the one that takes writes. */
  async open(signal: AbortSignal): Promise<Socket> {
    const known = this.#primary;
    // Looked for anew if this attempt fails.
    this.#primary = undefined;
    const hosts = known === undefined ? hostsOf(this.target) : [known];
    const failures: unknown[] = [];
    for (const host of hosts) {
      const limit = AbortSignal.timeout(
        Math.ceil(CONNECT_TIMEOUT_MS / hosts.length),
      );
      const either = AbortSignal.any([signal, limit]);
      try {
        // The one that is known has been asked before.
        const isUsable =
          known !== undefined || (await this.#isUsable(host, either));
        if (!isUsable) continue;
        const socket = await openTransport(this.target, host, either);
        if (this.target.wantsPrimary) this.#primary = host;
        return socket;
      } catch (error) {
        if (signal.aborted) throw error;
        failures.push(error);
      }
    }
    throw this.#unreachable(failures);
  }

  /** For a connection whose host turns out to take no writes any more. */
  forgetPrimary(): void {
    this.#primary = undefined;
  }

  /** Asks a host on a connection of its own whether it takes writes, if that matters. */
  async #isUsable(host: PostgresHost, signal: AbortSignal): Promise<boolean> {
    if (!this.target.wantsPrimary) return true;
    const alone = { ...this.target, hosts: [host], wantsPrimary: false };
    const client = new new PostgresAddress(alone).client();
    client.on('error', () => undefined);
    const onAbort = (): void => void client.end().catch(() => undefined);
    signal.addEventListener('abort', onAbort);
    try {
      await client.connect();
      const { rows } = await client.query<{ transaction_read_only: string }>(
        'show transaction_read_only',
      );
      return rows[0]?.transaction_read_only === 'off';
    } finally {
      signal.removeEventListener('abort', onAbort);
      await client.end();
    }
  }

  #unreachable(failures: readonly unknown[]): unknown {
    const [first] = failures;
    if (failures.length === 1 && hostsOf(this.target).length === 1)
      return first;
    const states = failures.map((one) =>
      one instanceof Error ? one.message : String(one),
    );
    const state =
      states.length === 0 ? 'no host takes writes' : states.join('; ');
    return new UnreachableError(
      `Cannot connect to the database at ${this.place}: ${state}; check DATABASE_URL`,
      { code: 'DATABASE_UNREACHABLE', cause: first },
    );
  }
}

/** @throws TypeError if the URL is not accepted, which the settings have looked at before */
export function openPostgresAddress(url: string): PostgresAddress {
  const target = readPostgresUrl(url);
  if (typeof target === 'string') throw new TypeError(`DATABASE_URL ${target}`);
  return new PostgresAddress(target);
}

function clientOf(address: PostgresAddress): ClientClass {
  const { user, password, database, options, bindsChannel } = address.target;
  return class extends Client {
    constructor(config: ClientConfig = {}) {
      super({
        application_name: 'ledger-mirror',
        connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
        ...config,
        ...(user !== undefined && { user }),
        ...(password !== undefined && { password }),
        ...(database !== undefined && { database }),
        ...(options !== undefined && { options }),
        ...(bindsChannel && { enableChannelBinding: true }),
        // TLS is the transport's; the library would begin it a second time.
        ssl: false,
        connection: new TargetConnection(address),
      } as ClientConfig);
    }
  };
}

/** What the library's connection has beyond its declared types, and its client uses. */
interface LibraryConnection {
  stream: Socket;
  attachListeners(stream: Socket): void;
}

/** The library's connection over a socket that is opened by our rules. */
class TargetConnection extends Connection {
  readonly #address: PostgresAddress;
  readonly #library = this as unknown as LibraryConnection;

  constructor(address: PostgresAddress) {
    // Stands for the socket until there is one: the library destroys it to give up.
    super({ stream: () => new Socket(), ssl: false });
    this.#address = address;
  }

  /** Called by the library's client, whose own idea of host and port does not count. */
  connect(): void {
    // Without this mark the library would not say goodbye to the server.
    Object.assign(this, { _connecting: true });
    void this.#open();
  }

  async #open(): Promise<void> {
    const standIn = this.#library.stream;
    const givenUp = new AbortController();
    const giveUp = (error?: unknown): void =>
      givenUp.abort(
        error instanceof Error ? error : new Error('Connection terminated'),
      );
    standIn.on('error', giveUp).on('close', giveUp);
    try {
      const socket = await this.#address.open(givenUp.signal);
      standIn.off('close', giveUp).destroy();
      this.#take(socket);
    } catch (error) {
      this.emit('error', error);
      this.emit('end');
    }
  }

  #take(socket: Socket): void {
    this.#library.stream = socket;
    socket.on('error', (error: NodeJS.ErrnoException) => {
      // The library marks a connection that it is closing: its end is no failure.
      const isClosing = Reflect.get(this, '_ending') === true;
      const isEnd = error.code === 'ECONNRESET' || error.code === 'EPIPE';
      if (!isClosing || !isEnd) this.emit('error', error);
    });
    socket.on('close', () => this.emit('end'));
    this.#library.attachListeners(socket);
    this.emit('connect');
  }
}
