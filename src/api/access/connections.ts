/**
 * Bounds on what strangers may hold open. An address that opens more connections than it may loses its oldest
 * ones that never showed a token, so that the next request of anybody else still gets in.
 */
import type { Server } from 'node:http';
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

/** Connections that have not been let through the gate, the oldest first. */
class Strangers {
  readonly #sockets = new Set<Socket>();
  readonly #perAddress = new Map<string, number>();

  add(socket: Socket): void {
    const address = socket.remoteAddress ?? '';
    this.#sockets.add(socket);
    this.#perAddress.set(address, (this.#perAddress.get(address) ?? 0) + 1);
    const remove = (): void => this.remove(socket, address);
    socket.once('close', remove);
    const isCrowd = (this.#perAddress.get(address) ?? 0) > STRANGERS_PER_ADDRESS_MAX;
    if (isCrowd) this.#dropOldest((other) => (other.remoteAddress ?? '') === address);
    else if (this.#sockets.size > STRANGERS_MAX) this.#dropOldest(() => true);
  }

  remove(socket: Socket, address = socket.remoteAddress ?? ''): void {
    if (!this.#sockets.delete(socket)) return;
    const left = (this.#perAddress.get(address) ?? 1) - 1;
    if (left > 0) this.#perAddress.set(address, left);
    else this.#perAddress.delete(address);
  }

  #dropOldest(isMeant: (socket: Socket) => boolean): void {
    for (const socket of this.#sockets) {
      if (!isMeant(socket)) continue;
      socket.destroy();
      this.remove(socket);
      return;
    }
  }
}

/** Must be added behind the gate: whatever its hooks see was let through. */
export function addBounds(server: FastifyInstance): void {
  const http: Server = server.server;
  http.maxConnections = CONNECTIONS_MAX;
  const strangers = new Strangers();
  http.on('connection', (socket) => strangers.add(socket));
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
    throw StatusError.ofGateway('unavailable', `too many ${kind} are open; try again`);
  });
}
