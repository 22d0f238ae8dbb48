/**
 * A proxy before Postgres that loses the answer to a chosen statement: it was done, and
 * nobody is told.
 */
import { createServer, connect, type Server, type Socket } from 'node:net';
import { once } from 'node:events';

export class CuttingProxy implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Asked for each packet to the server: whether its answer gets lost. */
  loses: (packet: string) => boolean = () => false;
  losses = 0;
  /** The database, through the proxy. */
  url = '';

  /** Where connections go from now on. */
  target: URL;

  private constructor(target: URL) {
    this.target = target;
    this.#server = createServer((client) => {
      const upstream = connect(Number(this.target.port), this.target.hostname);
      let isLost = false;
      for (const socket of [client, upstream]) {
        this.#sockets.add(socket);
        socket.on('error', () => undefined);
        socket.once('close', () => {
          this.#sockets.delete(socket);
          client.destroy();
          upstream.destroy();
        });
      }
      client.on('data', (packet) => {
        if (!isLost && this.loses(packet.toString('latin1'))) {
          isLost = true;
          this.losses += 1;
        }
        upstream.write(packet);
      });
      upstream.on('data', (packet) => {
        if (isLost) client.destroy();
        else client.write(packet);
      });
    });
  }

  static async before(databaseUrl: string): Promise<CuttingProxy> {
    const target = new URL(databaseUrl);
    const proxy = new CuttingProxy(target);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    const address = proxy.#server.address();
    if (address === null || typeof address === 'string')
      throw new Error('The proxy has no port');
    const url = new URL(databaseUrl);
    url.hostname = '127.0.0.1';
    url.port = `${address.port}`;
    proxy.url = url.href;
    return proxy;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }
}
