/**
 * Postgres clients for all pools in this process. They connect by libpq's rules and, if
 * there are several servers, to the primary, which accepts writes.
 */
import { Socket } from 'node:net';
import { Client, type ClientConfig, Connection } from 'pg';
import {
  errorCode,
  PermanentError,
  UnreachableError,
} from '../../errors/errors.ts';
import type { RotatingSecret } from '../rotating-secret.ts';
import {
  placeOf,
  type PostgresHost,
  type PostgresTarget,
  readPostgresUrl,
} from './postgres-url.ts';
import { hostsOf, openTransport } from './transport.ts';

/** Timeout of a connection attempt, shared by all hosts of a URL. */
const CONNECT_TIMEOUT_MS = 10_000;

/**
 * SQLSTATEs of a refused login: wrong password or role, or a role that may not log in.
 */
const LOGIN_REFUSED: ReadonlySet<string> = new Set(['28P01', '28000']);

type ClientClass = new (config?: ClientConfig) => Client;

/**
 * The role and password that a client connects with; libpq's defaults apply to undefined
 * fields.
 */
export interface PostgresLogin {
  readonly user: string | undefined;
  readonly password: string | undefined;
}

/** A database to connect clients to. It remembers which of its hosts accepts writes. */
export class PostgresAddress {
  readonly target: PostgresTarget;
  /** Host and port for messages, without user and password. */
  readonly place: string;
  /** The class that a pool creates its clients from. */
  readonly client: ClientClass;
  readonly #login: RotatingSecret<PostgresLogin> | undefined;
  #primary: PostgresHost | undefined;

  /** @param login overrides the target's user and password, if these may change */
  constructor(target: PostgresTarget, login?: RotatingSecret<PostgresLogin>) {
    this.target = target;
    this.#login = login;
    this.place = placeOf(target);
    this.client = clientOf(this);
  }

  /** The login of the next client that connects. */
  get login(): PostgresLogin {
    return this.#login?.current ?? this.target;
  }

  /**
   * Runs `connect`. If the login is refused and its file contains a different login by
   * now, runs `connect` again.
   * @throws PermanentError `DATABASE_28P01` or `DATABASE_28000` if the login comes from a
   *   rotating secret; the message says where it comes from
   */
  async withLogin<Result>(connect: () => Promise<Result>): Promise<Result> {
    const login = this.#login;
    if (login === undefined) return connect();
    for (;;) {
      const sent = login.current;
      try {
        return await connect();
      } catch (error) {
        const code = refusalOf(error);
        if (code === undefined) throw error;
        if (!login.renew(sent)) throw this.#refused(code, login.advice, error);
      }
    }
  }

  /** Call this for each connection that the server has accepted. */
  accepted(): void {
    this.#login?.accept();
  }

  /**
   * Connects once and disconnects.
   * @throws as `withLogin`
   */
  async proveLogin(): Promise<void> {
    await this.withLogin(async () => {
      const client = new this.client();
      client.on('error', () => undefined);
      try {
        await client.connect();
        this.accepted();
      } finally {
        await client.end();
      }
    });
  }

  /**
   * Opens a socket to the first host that responds or, if `wantsPrimary` is set, to the
   * host that accepts writes.
   */
  async open(signal: AbortSignal): Promise<Socket> {
    const known = this.#primary;
    // If this attempt fails, the next one searches all hosts.
    this.#primary = undefined;
    const hosts = known === undefined ? hostsOf(this.target) : [known];
    const failures: unknown[] = [];
    for (const host of hosts) {
      const limit = AbortSignal.timeout(
        Math.ceil(CONNECT_TIMEOUT_MS / hosts.length),
      );
      const either = AbortSignal.any([signal, limit]);
      try {
        // A known primary has already passed the check.
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

  /** Call this if a connection's host no longer accepts writes. */
  forgetPrimary(): void {
    this.#primary = undefined;
  }

  /**
   * Checks on a separate connection whether a host accepts writes. Always true if the
   * connection does not have to accept writes.
   */
  async #isUsable(host: PostgresHost, signal: AbortSignal): Promise<boolean> {
    if (!this.target.wantsPrimary) return true;
    const { user, password } = this.login;
    const alone = {
      ...this.target,
      user,
      password,
      hosts: [host],
      wantsPrimary: false,
    };
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

  #refused(code: string, advice: string, cause: unknown): PermanentError {
    const state = cause instanceof Error ? cause.message : String(cause);
    return new PermanentError(
      `Cannot use the database at ${this.place}: ${state}; ${advice}`,
      { code: `DATABASE_${code}`, meta: { sqlstate: code }, cause },
    );
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

/**
 * Parses a URL into the address to connect to.
 * @throws TypeError if the URL is invalid, which the settings have already ruled out
 */
export function openPostgresAddress(
  url: string,
  login?: RotatingSecret<PostgresLogin>,
): PostgresAddress {
  const target = readPostgresUrl(url);
  if (typeof target === 'string') throw new TypeError(`DATABASE_URL ${target}`);
  return new PostgresAddress(target, login);
}

/**
 * Returns the SQLSTATE of a refused login. If several hosts failed, the first host's
 * error counts.
 */
function refusalOf(error: unknown): string | undefined {
  const code = errorCode(error);
  if (LOGIN_REFUSED.has(code)) return code;
  return error instanceof UnreachableError && error.cause !== undefined
    ? refusalOf(error.cause)
    : undefined;
}

function clientOf(address: PostgresAddress): ClientClass {
  const { database, options, bindsChannel } = address.target;
  return class extends Client {
    constructor(config: ClientConfig = {}) {
      const { user, password } = address.login;
      super({
        application_name: 'ledger-mirror',
        connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
        ...config,
        ...(user !== undefined && { user }),
        ...(password !== undefined && { password }),
        ...(database !== undefined && { database }),
        ...(options !== undefined && { options }),
        ...(bindsChannel && { enableChannelBinding: true }),
        // The transport has already handled TLS; otherwise the library would start it a
        // second time.
        ssl: false,
        connection: new TargetConnection(address),
      } as ClientConfig);
    }
  };
}

/**
 * Members of the library's connection that its client uses but its types do not declare.
 */
interface LibraryConnection {
  stream: Socket;
  attachListeners(stream: Socket): void;
}

/** The library's connection, over a socket opened by our own rules. */
class TargetConnection extends Connection {
  readonly #address: PostgresAddress;
  readonly #library = this as unknown as LibraryConnection;

  constructor(address: PostgresAddress) {
    // A placeholder until the real socket exists. The library destroys it to cancel the
    // connection attempt.
    super({ stream: () => new Socket(), ssl: false });
    this.#address = address;
  }

  /** Called by the library's client. The host and port that it passes are ignored. */
  connect(): void {
    // Without this flag the library would not terminate the session cleanly.
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
      // The library marks a connection that it is closing, on which a reset is not a
      // failure.
      const isClosing = Reflect.get(this, '_ending') === true;
      const isEnd = error.code === 'ECONNRESET' || error.code === 'EPIPE';
      if (!isClosing || !isEnd) this.emit('error', error);
    });
    socket.on('close', () => this.emit('end'));
    this.#library.attachListeners(socket);
    this.emit('connect');
  }
}
