/** Opens the API's port, and closes it without cutting off answers that are nearly done. */
import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { errorCode, PermanentError } from '../../core/errors.ts';
import { refuseOpenListening } from '../access/hosts.ts';

/** What is wrong with an address that cannot be listened on, and what to do. */
const WHY_UNUSABLE: Readonly<Record<string, string>> = {
  EADDRINUSE:
    'another program uses the port; set API_PORT to another, such as 8081, or to 0 for any that is free',
  EACCES: 'this user may not use the port; set API_PORT to one above 1023',
  EADDRNOTAVAIL: 'this machine does not have the address; set API_HOST to one that it has',
};
const CLOSE_GRACE_MS = 2_000;

export interface ListenOptions {
  readonly host: string;
  /** 0: a free one. */
  readonly port: number;
  readonly token: string | undefined;
}

export interface Listening extends AsyncDisposable {
  readonly url: string;
}

/**
 * @throws UsageError where others could reach it and there is no token
 * @throws PermanentError `API_PORT_UNUSABLE`
 */
export async function listen(server: FastifyInstance, options: ListenOptions): Promise<Listening> {
  refuseOpenListening(options.host, options.token);
  try {
    await server.listen({ host: options.host, port: options.port });
  } catch (error) {
    throw portUnusable(options.host, options.port, error);
  }
  const { port } = server.server.address() as AddressInfo;
  const host = options.host.includes(':') ? `[${options.host}]` : options.host;
  return { url: `http://${host}:${port}`, [Symbol.asyncDispose]: () => close(server) };
}

export function portUnusable(host: string, port: number, cause: unknown): PermanentError {
  return new PermanentError(
    `Cannot listen on ${host}:${port}: ${WHY_UNUSABLE[errorCode(cause) ?? ''] ?? 'set API_HOST and API_PORT to an address that is free'}`,
    { code: 'API_PORT_UNUSABLE', meta: { host, port }, cause },
  );
}

async function close(server: FastifyInstance): Promise<void> {
  // Event streams and slow downloads would keep it open for ever.
  const impatient = setTimeout(() => server.server.closeAllConnections(), CLOSE_GRACE_MS);
  try {
    await server.close();
  } finally {
    clearTimeout(impatient);
  }
}
