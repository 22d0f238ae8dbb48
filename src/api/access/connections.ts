/**
 * Bounds on what strangers may hold open. An address that opens more connections than it may loses its oldest
 * ones that never showed a token, so that the next request of anybody else still gets in.
 */
import type { Socket } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { StatusError } from '../kit/status-error.ts';
import { isHealthPath, isOpenPath } from './access.ts';
import { pathOf } from './hosts.ts';

const CONNECTIONS_MAX = 1_024;
const STRANGERS_MAX = 512;
const STRANGERS_PER_ADDRESS_MAX = 256;
/** What more would only wait for the database's connections. */
const OPEN_REQUESTS_MAX = 256;
/** A login waits for a body from somebody who has shown nothing yet. */
const OPEN_LOGINS_MAX = 16;

/** Must be added behind the gate: whatever its hooks see was let through. */
export function addBounds(server: FastifyInstance): void {
  /** Connections that have not been let through the gate, the oldest first, with their addresses. */
  const strangers = new Map<Socket, string | undefined>();
  server.server.maxConnections = CONNECTIONS_MAX;
  server.server.on('connection', (socket) => {
    strangers.set(socket, socket.remoteAddress);
    socket.once('close', () => strangers.delete(socket));
    const all = [...strangers.keys()];
    const neighbours = all.filter(
      (other) => strangers.get(other) === socket.remoteAddress,
    );
    const isOneTooMany = neighbours.length > STRANGERS_PER_ADDRESS_MAX;
    const oldest = isOneTooMany ? neighbours[0] : all[0];
    if (oldest === undefined || !(isOneTooMany || all.length > STRANGERS_MAX)) return;
    oldest.destroy();
    strangers.delete(oldest);
  });
  const open = { requests: 0, logins: 0 };
  server.addHook('onRequest', async (request, reply) => {
    if (isHealthPath(request)) return;
    const isLogin = request.method === 'POST' && pathOf(request) === '/login';
    if (!isOpenPath(request)) strangers.delete(request.raw.socket);
    // Gone while the gate looked: it would never be counted down.
    if (reply.raw.destroyed) return;
    const kind = isLogin ? 'logins' : 'requests';
    open[kind] += 1;
    reply.raw.once('close', () => (open[kind] -= 1));
    if (open[kind] <= (isLogin ? OPEN_LOGINS_MAX : OPEN_REQUESTS_MAX)) return;
    reply.header('retry-after', '1');
    throw new StatusError('unavailable', `too many ${kind} are open; try again`);
  });
}
