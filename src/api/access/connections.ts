/**
 * Limits how many connections unauthenticated clients may hold open. When there are too
 * many, from one address or in total, the oldest connection that has not shown a token
 * is closed, so that the next request of any other client can still connect.
 */
import type { Socket } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { StatusError } from '../kit/status-error.ts';
import { isHealthPath, isOpenPath, pathOf } from './paths.ts';

const CONNECTIONS_MAX = 1_024;
const STRANGERS_MAX = 512;
const STRANGERS_PER_ADDRESS_MAX = 256;
/**
 * The most requests that are open at the same time; more would only wait for connections
 * to the database.
 */
const OPEN_REQUESTS_MAX = 256;
/**
 * The most logins that are open at the same time. A login waits for the body of a client
 * that has not authenticated yet.
 */
const OPEN_LOGINS_MAX = 16;

/**
 * Adds the limits. Call this after the access checks have been added, so that the hooks
 * see only requests that passed those checks.
 */
export function addBounds(server: FastifyInstance): void {
  const strangers = watchStrangers(server);
  const open = { requests: 0, logins: 0 };
  server.addHook('onRequest', async (request, reply) => {
    if (isHealthPath(request)) return;
    if (!isOpenPath(request)) strangers.delete(request.raw.socket);
    // The client left during the access checks: its `close` event has already fired and
    // would not be seen here.
    if (reply.raw.destroyed) return;

    const isLogin = request.method === 'POST' && pathOf(request) === '/login';
    const kind = isLogin ? 'logins' : 'requests';
    open[kind] += 1;
    reply.raw.once('close', () => {
      open[kind] -= 1;
    });
    if (open[kind] <= (isLogin ? OPEN_LOGINS_MAX : OPEN_REQUESTS_MAX)) return;
    reply.header('retry-after', '1');
    throw new StatusError(
      'unavailable',
      `too many ${kind} are open; try again`,
    );
  });
}

/**
 * Closes unauthenticated connections beyond the limits.
 * @returns connections that have not passed the access checks, the oldest first, each
 *   with its address
 */
function watchStrangers(
  server: FastifyInstance,
): Map<Socket, string | undefined> {
  const strangers = new Map<Socket, string | undefined>();
  server.server.maxConnections = CONNECTIONS_MAX;
  server.server.on('connection', (socket) => {
    strangers.set(socket, socket.remoteAddress);
    socket.once('close', () => strangers.delete(socket));
    const surplus = findSurplus(strangers, socket.remoteAddress);
    surplus?.destroy();
    if (surplus !== undefined) strangers.delete(surplus);
  });
  return strangers;
}

/**
 * Returns the connection to close if there are more connections than a limit allows.
 */
function findSurplus(
  strangers: ReadonlyMap<Socket, string | undefined>,
  address: string | undefined,
): Socket | undefined {
  const all = [...strangers.keys()];
  const neighbours = all.filter((socket) => strangers.get(socket) === address);
  if (neighbours.length > STRANGERS_PER_ADDRESS_MAX) return neighbours[0];
  return all.length > STRANGERS_MAX ? all[0] : undefined;
}
