/**
 * Bounds on what strangers may hold open. An address that opens more connections than it may loses its oldest
 * ones that never showed a token, so that the next request of anybody else still gets in.
 */
import type { Socket } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { StatusError } from '../http/status-error.ts';
import { isHealthPath, isOpenPath } from './access.ts';
import { pathOf } from './hosts.ts';

const CONNECTIONS_MAX = 1_024;
const STRANGERS_MAX = 512;
const STRANGERS_PER_ADDRESS_MAX = 256;
/** What more would only wait for the database's connections. */
const OPEN_REQUESTS_MAX = 256;
/** A login waits for a body from somebody who has shown nothing yet. */
const OPEN_LOGINS_MAX = 16;

/** Connections that have not been let through the gate, the oldest first, with their addresses. */
class Strangers {
  readonly #addresses = new Map<Socket, string>();

  add(socket: Socket): void {
    const address = socket.remoteAddress ?? '';
    this.#addresses.set(socket, address);
    socket.once('close', () => this.remove(socket));
    const all = [...this.#addresses.keys()];
    const neighbours = all.filter((other) => this.#addresses.get(other) === address);
    if (neighbours.length > STRANGERS_PER_ADDRESS_MAX) this.#drop(neighbours[0]);
    else if (all.length > STRANGERS_MAX) this.#drop(all[0]);
  }

  remove(socket: Socket): void {
    this.#addresses.delete(socket);
  }

  #drop(socket: Socket | undefined): void {
    if (socket === undefined) return;
    socket.destroy();
    this.remove(socket);
  }
}

/** Must be added behind the gate: whatever its hooks see was let through. */
export function addBounds(server: FastifyInstance): void {
  const strangers = new Strangers();
  server.server.maxConnections = CONNECTIONS_MAX;
  server.server.on('connection', (socket) => strangers.add(socket));
  const open = { requests: 0, logins: 0 };
  server.addHook('onRequest', async (request, reply) => {
    if (isHealthPath(request)) return;
    const isLogin = request.method === 'POST' && pathOf(request) === '/login';
    if (!isOpenPath(request)) strangers.remove(request.raw.socket);
    const kind = isLogin ? 'logins' : 'requests';
    open[kind] += 1;
    reply.raw.once('close', () => (open[kind] -= 1));
    if (open[kind] <= (isLogin ? OPEN_LOGINS_MAX : OPEN_REQUESTS_MAX)) return;
    reply.header('retry-after', '1');
    throw new StatusError('unavailable', `too many ${kind} are open; try again`);
  });
}
