/**
 * Shared by Ceph and Swift: programs unpacked from Debian's packages, run in a folder of
 * their own.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { unpackDebian, unpackedEnv } from './debian-packages.ts';
import { Child } from '../process.ts';
import { type Keys, newKeys, type RealStore } from './real-store.ts';
import { waitFor } from '../wait-for.ts';

const run = promisify(execFile);
const TOOL_TIMEOUT_MS = 120_000;
const START_TIMEOUT_MS = 180_000;

/** Makes and starts a store, and cleans up if that fails. */
export async function startUnpacked<Store extends UnpackedStore>(
  packages: { readonly name: string; readonly all: readonly string[] },
  make: (root: string, dir: string) => Store,
): Promise<Store> {
  const root = await unpackDebian(packages.name, packages.all);
  const store = make(
    root,
    await mkdtemp(join(tmpdir(), `lm-${packages.name}-`)),
  );
  try {
    store.env = await unpackedEnv(root);
    await store.start();
    return store;
  } catch (error) {
    await store[Symbol.asyncDispose]();
    throw error;
  }
}

export abstract class UnpackedStore implements RealStore {
  abstract readonly name: string;
  readonly bucket = 'mirror';
  readonly keys: Keys = newKeys('main');
  readonly readOnlyKeys: Keys = newKeys('reader');
  readonly root: string;
  readonly dir: string;
  env: Record<string, string> = {};
  port = 0;
  readonly #children: Child[] = [];
  #gateway: Child | undefined;

  constructor(root: string, dir: string) {
    this.root = root;
    this.dir = dir;
  }

  abstract start(): Promise<void>;
  /** Starts the process that speaks S3. */
  protected abstract gateway(): Child;
  protected abstract isWell(answer: Response): boolean;
  /** The path that shows whether the store is up. */
  protected readonly healthPath: string = '/';

  get endpoint(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  async killGateway(): Promise<void> {
    await this.#gateway?.end('SIGKILL');
  }

  async startGateway(): Promise<void> {
    const gateway = this.gateway();
    this.#gateway = gateway;
    await waitFor(
      async () => {
        if (!gateway.isRunning)
          throw new Error(
            `the gateway has ended:\n${gateway.stdout}\n${gateway.stderr}`,
          );
        const answer = await fetch(`${this.endpoint}${this.healthPath}`).catch(
          () => undefined,
        );
        await answer?.body?.cancel();
        return answer !== undefined && this.isWell(answer);
      },
      { timeoutMs: START_TIMEOUT_MS, what: `an answer of ${this.name}` },
    );
  }

  freezeGateway(): void {
    this.#gateway?.signal('SIGSTOP');
  }

  thawGateway(): void {
    this.#gateway?.signal('SIGCONT');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of this.#children.toReversed())
      await child[Symbol.asyncDispose]();
    await rm(this.dir, { recursive: true, force: true });
  }

  protected program(name: string): string {
    return join(this.root, 'usr', 'bin', name);
  }

  protected async tool(name: string, args: readonly string[]): Promise<void> {
    await run(this.program(name), [...args], {
      cwd: this.dir,
      env: { ...process.env, ...this.env },
      timeout: TOOL_TIMEOUT_MS,
    });
  }

  protected daemon(command: string, args: readonly string[]): Child {
    const child = new Child(command, args, { cwd: this.dir, env: this.env });
    this.#children.push(child);
    return child;
  }
}
