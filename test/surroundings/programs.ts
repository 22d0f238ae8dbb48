/**
 * Programs of Debian that stand around a mirror, unpacked and started without rights. What cannot be
 * started here is said on stderr, and its tests are skipped by that name.
 */
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Child } from '../support/process.ts';
import {
  unpackDebian,
  unpackedEnv,
} from '../support/stores/debian-packages.ts';
import { freePort } from '../support/servers/redis-process.ts';
import { waitFor } from '../support/wait-for.ts';

const START_TIMEOUT_MS = 30_000;
/** For servers that give up root's rights themselves. */
export const isRoot = process.getuid?.() === 0;

export interface Program {
  readonly root: string;
  readonly env: Readonly<Record<string, string>>;
}

/** @returns undefined if it cannot be had here, after saying so */
export async function findProgram(
  name: string,
  binary: string,
): Promise<Program | undefined> {
  try {
    const root = await unpackDebian(name, [name]);
    const env = await unpackedEnv(root);
    await using child = new Child(join(root, binary), ['-V'], { env });
    await child.end();
    return { root, env };
  } catch (error) {
    const state = error instanceof Error ? error.message : String(error);
    process.stderr.write(
      `Not tested in these surroundings: ${name} (${state.split('\n', 1)[0]})\n`,
    );
    return undefined;
  }
}

/** A server in a folder of its own; disposing ends it. */
export class Daemon implements AsyncDisposable {
  readonly port: number;
  readonly #dir: string;
  readonly #child: Child;

  private constructor(port: number, dir: string, child: Child) {
    this.port = port;
    this.#dir = dir;
    this.#child = child;
  }

  /**
   * @param configure returns the text of the file that `args` names, by folder and port
   * @param files further files of the folder, by name
   */
  static async start(
    { root, env }: Program,
    binary: string,
    configure: (dir: string, port: number) => string,
    args: (file: string) => readonly string[],
    files: Readonly<Record<string, string>> = {},
  ): Promise<Daemon> {
    const dir = await mkdtemp(join(tmpdir(), 'lm-surroundings-'));
    await chmod(dir, 0o777);
    const port = await freePort();
    const file = join(dir, 'daemon.conf');
    await writeFile(file, configure(dir, port));
    for (const [name, text] of Object.entries(files))
      await writeFile(join(dir, name), text);
    const child = new Child(join(root, binary), args(file), { env, cwd: dir });
    const daemon = new Daemon(port, dir, child);
    try {
      await waitFor(() => daemon.#answers(), {
        timeoutMs: START_TIMEOUT_MS,
        what: `${binary} listens`,
      });
      return daemon;
    } catch (error) {
      await daemon[Symbol.asyncDispose]();
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#child[Symbol.asyncDispose]();
    await rm(this.#dir, { recursive: true, force: true });
  }

  #answers(): Promise<boolean> {
    if (!this.#child.isRunning)
      throw new Error(
        `It has ended:\n${this.#child.stdout}\n${this.#child.stderr}`,
      );
    return new Promise((resolve) => {
      const socket = createConnection(this.port, '127.0.0.1');
      socket.on('connect', () => {
        socket.destroy();
        resolve(true);
      });
      socket.on('error', () => resolve(false));
    });
  }
}
