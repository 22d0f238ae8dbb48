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

export interface Listening extends AsyncDisposable {
  readonly url: string;
}

/**
 * @param address port 0: a free one
 * @throws UsageError where others could reach it and there is no token
 * @throws PermanentError `API_PORT_UNUSABLE`
 */
export async function listen(
  server: FastifyInstance,
  { host, port, token }: { readonly host: string; readonly port: number; readonly token: string | undefined },
): Promise<Listening> {
  refuseOpenListening(host, token);
  try {
    await server.listen({ host, port });
  } catch (cause) {
    const why = WHY_UNUSABLE[errorCode(cause)] ?? 'set API_HOST and API_PORT to an address that is free';
    const details = { code: 'API_PORT_UNUSABLE', meta: { host, port }, cause };
    throw new PermanentError(`Cannot listen on ${host}:${port}: ${why}`, details);
  }
  const { port: opened } = server.server.address() as AddressInfo;
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${opened}`,
    [Symbol.asyncDispose]: async () => {
      // Event streams and slow downloads would keep it open for ever.
      const impatient = setTimeout(() => server.server.closeAllConnections(), CLOSE_GRACE_MS);
      await server.close().finally(() => clearTimeout(impatient));
    },
  };
}
