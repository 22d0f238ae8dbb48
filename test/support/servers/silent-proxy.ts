/**
 * A proxy whose open connections can go dead, as if their route were lost: nothing gets
 * through, and neither end is notified. It can also make the whole service unreachable.
 */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

interface Line {
  readonly ends: readonly [Socket, Socket];
  isDead: boolean;
}

export class SilentProxy implements AsyncDisposable {
  readonly #server: Server;
  readonly #lines = new Set<Line>();
  /** The URL of the service through the proxy. */
  readonly url: string;
  /** The number of connections opened so far. */
  opened = 0;

  private constructor(server: Server, url: string) {
    this.#server = server;
    this.url = url;
  }

  static async before(serviceUrl: string): Promise<SilentProxy> {
    const target = new URL(serviceUrl);
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    if (address === null || typeof address === 'string')
      throw new Error('the proxy has no port');
    const url = new URL(serviceUrl);
    url.hostname = '127.0.0.1';
    url.port = `${address.port}`;
    const proxy = new SilentProxy(server, url.href);
    server.on('connection', (client) => {
      proxy.#open(client, connect(Number(target.port), target.hostname));
    });
    return proxy;
  }

  /**
   * From now on, loses everything sent over the connections that are currently open; new
   * ones work.
   */
  loseAll(): void {
    for (const line of this.#lines) line.isDead = true;
  }

  /**
   * Behaves like a service that has stopped: connections break, and new ones are refused
   * until `comeBack`.
   */
  async goAway(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const { ends } of this.#lines) for (const end of ends) end.destroy();
    await closed;
  }

  async comeBack(): Promise<void> {
    this.#server.listen(Number(new URL(this.url).port), '127.0.0.1');
    await once(this.#server, 'listening');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#server.listening) await this.goAway();
  }

  #open(client: Socket, service: Socket): void {
    const line: Line = { ends: [client, service], isDead: false };
    this.#lines.add(line);
    this.opened += 1;
    const join = (from: Socket, to: Socket): void => {
      from.on('data', (bytes) => {
        if (!line.isDead) to.write(bytes);
      });
      from.on('error', () => undefined);
      from.once('close', () => {
        // The client of a dead connection must not notice that the service closed its
        // end.
        if (line.isDead && from === service) return;
        this.#lines.delete(line);
        client.destroy();
        service.destroy();
      });
    };
    join(client, service);
    join(service, client);
  }
}
