/**
 * Limits how many connections unauthenticated clients may keep open, and how many
 * requests and logins may be open at the same time. When there are too many connections,
 * from one address or in total, the oldest one that has not presented a token is closed,
 * so that other clients can still connect.
 */
import type { Socket } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { StatusError } from '../kit/status-error.ts';
import { isHealthPath, isOpenPath, pathOf } from './paths.ts';

const CONNECTIONS_MAX = 1_024;
const STRANGERS_MAX = 512;
const STRANGERS_PER_ADDRESS_MAX = 256;
/**
 * Maximum number of concurrent requests; any more would only wait for database
 * connections.
 */
const OPEN_REQUESTS_MAX = 256;
/**
 * Maximum number of concurrent logins. Each one waits for the body of a client that has
 * not authenticated yet.
 */
const OPEN_LOGINS_MAX = 16;

/**
 * Adds the limits. Call this after adding the access checks, so that the hooks only see
 * requests that passed them.
 */
export function addBounds(server: FastifyInstance): void {
  const strangers = watchStrangers(server);
  const open = { requests: 0, logins: 0 };
  server.addHook('onRequest', async (request, reply) => {
    if (isHealthPath(request)) return;
    if (!isOpenPath(request)) strangers.delete(request.raw.socket);
    // The client disconnected during the access checks. Its `close` event has already
    // fired, so a listener added here would never run.
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
 * @returns connections that have not passed the access checks, oldest first, each with
 *   its address
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
