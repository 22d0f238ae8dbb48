/**
 * A private redis-server, which can be stopped, killed and restarted on the same port.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Child } from '../process.ts';
import type { RedisCommand } from './redis-binary.ts';

const START_TIMEOUT_MS = 60_000;
const PORT_ATTEMPTS = 3;

/** Disposing ends the server and removes its folder. */
export class RedisProcess implements AsyncDisposable {
  readonly #command: RedisCommand;
  readonly #dir: string;
  #child: Child | undefined;
  #port = 0;

  private constructor(command: RedisCommand, dir: string) {
    this.#command = command;
    this.#dir = dir;
  }

  static async start(command: RedisCommand): Promise<RedisProcess> {
    const server = new RedisProcess(
      command,
      await mkdtemp(join(tmpdir(), 'ledger-mirror-redis-')),
    );
    await server.start();
    return server;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.#port}`;
  }

  /** False if this machine has only the stand-in, which keeps no dump. */
  get isReal(): boolean {
    return this.#command.isReal;
  }

  /**
   * The file that SAVE and `stop` write and `start` reads; a test may replace it with an
   * older copy.
   */
  get dumpFile(): string {
    return join(this.#dir, 'dump.rdb');
  }

  /** Starts the server with its dump; after the first start, always on the same port. */
  async start(): Promise<void> {
    if (this.#child?.isRunning === true) return;
    for (let attempt = 1; ; attempt += 1) {
      const port = this.#port === 0 ? await freePort() : this.#port;
      try {
        this.#child = await this.#launch(port);
        this.#port = port;
        return;
      } catch (error) {
        if (attempt === PORT_ATTEMPTS) throw error;
      }
    }
  }

  /** Stops the server cleanly, so that it writes its dump. */
  async stop(): Promise<void> {
    await this.#child?.end('SIGTERM');
  }

  /** Kills the server with -9: data written after the last dump is lost. */
  async kill(): Promise<void> {
    await this.#child?.end('SIGKILL');
  }

  /** Keeps connections open without answering, until `thaw`. */
  freeze(): void {
    this.#child?.signal('SIGSTOP');
  }

  thaw(): void {
    this.#child?.signal('SIGCONT');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#child?.[Symbol.asyncDispose]();
    await rm(this.#dir, { recursive: true, force: true });
  }

  async #launch(port: number): Promise<Child> {
    const options = {
      port: String(port),
      bind: '127.0.0.1',
      dir: this.#dir,
      save: '3600 1',
      appendonly: 'no',
    };
    const args = Object.entries(options).flatMap(([name, value]) => [
      `--${name}`,
      value,
    ]);
    const { command, env } = this.#command;
    const child = new Child(command, [...this.#command.args, ...args], {
      env,
      cwd: this.#dir,
    });
    try {
      await child.waitForLine(/Ready to accept connections/, START_TIMEOUT_MS);
      return child;
    } catch (error) {
      await child[Symbol.asyncDispose]();
      throw error;
    }
  }
}

/**
 * The ports that this process has been given, because no two of its servers may share
 * one.
 */
const given = new Set<number>();

/**
 * Returns a port that nothing listens on. The system may offer a port again as soon as it
 * is free, so ports that were returned before are excluded.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = await offeredPort();
    if (given.has(port)) continue;
    given.add(port);
    return port;
  }
}

async function offeredPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (typeof address !== 'object' || address === null)
    throw new Error('no port');
  return address.port;
}
