/**
 * Opens the socket for a Postgres connection by libpq's rules: to one of several hosts,
 * with or without TLS. The library speaks the protocol over it.
 */
import { existsSync, readFileSync } from 'node:fs';
import { isIP, Socket } from 'node:net';
import { connect as connectTls, type ConnectionOptions } from 'node:tls';
import {
  errorCode,
  PermanentError,
  UnreachableError,
} from '../../errors/errors.ts';
import { classifyErrno } from '../../errors/faults.ts';
import {
  DEFAULT_PORT,
  isSocket,
  type PostgresHost,
  type PostgresTarget,
} from './postgres-url.ts';

/** The bytes of libpq's SSLRequest: its length, then its code, 1234 and 5679. */
const SSL_REQUEST = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]);
const YES = 'S'.charCodeAt(0);
const NO = 'N'.charCodeAt(0);
/**
 * The folders where distributions and Postgres itself put the socket of a local server.
 */
const SOCKET_FOLDERS = ['/var/run/postgresql', '/tmp'];
const KEEP_ALIVE_MS = 10_000;

/** Returns a socket that is ready for Postgres's own messages. */
export async function openTransport(
  target: PostgresTarget,
  to: PostgresHost,
  signal: AbortSignal,
): Promise<Socket> {
  const socket = await openSocket(to, signal);
  if (target.sslMode === 'disable' || isSocket(to.host)) return socket;
  try {
    if (target.isSslDirect) return await secure(socket, target, to, signal);
    socket.write(SSL_REQUEST);
    const answer = await readByte(socket, signal);
    if (answer === YES) return await secure(socket, target, to, signal);
    if (answer === NO && isOptional(target)) return socket;
    throw answer === NO ? noTls(target) : notPostgres(to);
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

/**
 * Whether the connection may be unencrypted. `allow` is treated like `prefer`: TLS is
 * used if the server offers it.
 */
function isOptional({ sslMode }: PostgresTarget): boolean {
  return sslMode === 'prefer' || sslMode === 'allow';
}

/**
 * Returns the hosts of the target. If it has none, returns the socket of a local server,
 * or `localhost` if there is no socket.
 */
export function hostsOf({ hosts }: PostgresTarget): readonly PostgresHost[] {
  const all = hosts.length === 0 ? [{ host: '', port: DEFAULT_PORT }] : hosts;
  return all.map(({ host, port }) =>
    host === '' ? { host: localHost(port), port } : { host, port },
  );
}

function localHost(port: number): string {
  const folder = SOCKET_FOLDERS.find((one) =>
    existsSync(`${one}/.s.PGSQL.${port}`),
  );
  return folder ?? 'localhost';
}

function openSocket(to: PostgresHost, signal: AbortSignal): Promise<Socket> {
  const socket = new Socket();
  socket.setNoDelay(true);
  socket.setKeepAlive(true, KEEP_ALIVE_MS);
  const opening = settled(socket, 'connect', signal);
  if (isSocket(to.host))
    socket.connect(`${to.host.replace(/^@/, '\0')}/.s.PGSQL.${to.port}`);
  else socket.connect(to.port, to.host);
  return opening.then(() => socket);
}

/** Reads exactly one byte, because the bytes after it belong to TLS. */
async function readByte(socket: Socket, signal: AbortSignal): Promise<number> {
  for (;;) {
    const chunk = socket.read(1) as Buffer | null;
    if (chunk !== null) return chunk[0] ?? 0;
    await settled(socket, 'readable', signal);
  }
}

async function secure(
  socket: Socket,
  target: PostgresTarget,
  to: PostgresHost,
  signal: AbortSignal,
): Promise<Socket> {
  const tls = connectTls({ ...tlsOptions(target, to), socket });
  try {
    await settled(tls, 'secureConnect', signal);
    return tls;
  } catch (error) {
    tls.destroy();
    throw classifyErrno(errorCode(error)) === 'certificate'
      ? notTrusted(target, error)
      : error;
  }
}

/**
 * Returns TLS options with libpq's semantics: `require` encrypts but does not verify,
 * unless a CA is given; `verify-ca` verifies the CA, and `verify-full` the host name too.
 */
function tlsOptions(
  target: PostgresTarget,
  { host }: PostgresHost,
): ConnectionOptions {
  const { sslMode, sslRootCert, sslCert, sslKey } = target;
  const ca =
    sslRootCert === undefined || sslRootCert === 'system'
      ? undefined
      : readPem('sslrootcert', sslRootCert);
  const isProven =
    sslMode === 'verify-ca' ||
    sslMode === 'verify-full' ||
    (sslMode === 'require' && ca !== undefined);
  return {
    host,
    ...(isIP(host) === 0 && { servername: host }),
    rejectUnauthorized: isProven,
    ...(ca !== undefined && { ca }),
    ...(sslMode !== 'verify-full' && { checkServerIdentity: () => undefined }),
    ...(sslCert !== undefined && { cert: readPem('sslcert', sslCert) }),
    ...(sslKey !== undefined && { key: readPem('sslkey', sslKey) }),
    ...(target.isSslDirect && { ALPNProtocols: ['postgresql'] }),
  };
}

function readPem(parameter: string, path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new PermanentError(
      `Cannot connect to the database: ${path} cannot be read (${errorCode(error)}); ` +
        `check ${parameter} in DATABASE_URL`,
      { code: 'DATABASE_TLS', meta: { path }, cause: error },
    );
  }
}

function notTrusted({ sslRootCert }: PostgresTarget, error: unknown): Error {
  const state = error instanceof Error ? error.message : String(error);
  const authority =
    sslRootCert === undefined
      ? 'name the file of its certificate authority with sslrootcert= ' +
        'in DATABASE_URL'
      : `check ${sslRootCert}, which sslrootcert in DATABASE_URL names`;
  return new PermanentError(
    "Cannot connect to the database: the server's certificate is not accepted " +
      `(${state}); ${authority}`,
    { code: 'DATABASE_TLS', cause: error },
  );
}

function noTls({ sslMode }: PostgresTarget): Error {
  return new PermanentError(
    'Cannot connect to the database: the server does not support TLS, ' +
      `and DATABASE_URL has sslmode=${sslMode}; turn on TLS there, or use ` +
      'sslmode=prefer',
    { code: 'DATABASE_TLS' },
  );
}

function notPostgres({ host, port }: PostgresHost): Error {
  return new PermanentError(
    `Cannot connect to the database: the server at ${host}:${port} is not ` +
      'Postgres; check DATABASE_URL',
    { code: 'DATABASE_TLS' },
  );
}

/**
 * Resolves on the event. Rejects on an error, when the connection ends, or when `signal`
 * aborts.
 */
function settled(
  socket: Socket,
  event: 'connect' | 'readable' | 'secureConnect',
  signal: AbortSignal,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = (error?: Error): void => {
      socket.off(event, onEvent).off('error', done).off('close', onEnd);
      socket.off('end', onEnd);
      signal.removeEventListener('abort', onAbort);
      if (error === undefined) {
        resolve();
        return;
      }
      // A later error adds no information, and must not crash the process.
      socket.on('error', () => undefined).destroy();
      reject(error);
    };
    const onEvent = (): void => done();
    const onEnd = (): void =>
      done(
        new UnreachableError(
          'Cannot connect to the database: the server closed the connection at once',
          { code: 'DATABASE_UNREACHABLE' },
        ),
      );
    const onAbort = (): void => done(signal.reason as Error);
    socket.on(event, onEvent).on('error', done).on('close', onEnd);
    socket.on('end', onEnd);
    signal.addEventListener('abort', onAbort);
    if (signal.aborted) onAbort();
  });
}
