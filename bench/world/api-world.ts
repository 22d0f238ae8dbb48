/**
 * Shared by the API's benchmarks: databases, the real commands as processes, and a client
 * that only counts bytes.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Agent, get } from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Client } from 'pg';

/** An upper bound for the number of bytes that follow the rows of a page. */
const END_BYTES = 256;
const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

export interface Running extends AsyncDisposable {
  readonly url: string;
}

export interface Home {
  readonly dir: string;
  readonly databaseUrl: string;
  readonly env: Readonly<Record<string, string>>;
}

/** Creates a database and a folder for one mirror on the given server. */
export async function openHome(
  serverUrl: string,
  dir: string,
  name: string,
): Promise<Home> {
  const client = new Client({ connectionString: serverUrl });
  await client.connect();
  await client.query(`create database ${name} template template0`);
  await client.end();
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  const dataDir = join(dir, name);
  return {
    dir: dataDir,
    databaseUrl: url.href,
    env: { DATABASE_URL: url.href, DATA_DIR: dataDir, API_PORT: '0' },
  };
}

/**
 * Starts `serve` or `up`; the process ends with the caller.
 * @param program what is started; by default the sources, without what `bin/` sets up
 */
export async function startServing(
  command: 'serve' | 'up',
  env: Home['env'],
  program = MAIN,
): Promise<Running> {
  const child = spawn(process.execPath, [program, command], {
    env: { ...process.env, LOG_LEVEL: 'info', ...env },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const closed = once(child, 'close');
  let url: string | undefined;
  for await (const line of createInterface({ input: child.stderr })) {
    const { msg, url: told } = JSON.parse(line) as {
      msg: string;
      url?: string;
    };
    if (msg === 'Serving') url = told;
    if (url !== undefined) break;
  }
  child.stderr.resume();
  if (url === undefined) throw new Error(`${command} did not begin to serve`);
  return {
    url,
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGTERM');
      await closed;
    },
  };
}

/**
 * Runs a command to its end.
 * @returns its duration in seconds
 */
export async function runCommand(
  args: readonly string[],
  env: Home['env'],
): Promise<number> {
  const startMs = performance.now();
  const child = spawn(process.execPath, [MAIN, ...args], {
    env: { ...process.env, LOG_LEVEL: 'warn', ...env },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`${args.join(' ')} ended in ${code}`);
  return (performance.now() - startMs) / 1_000;
}

/**
 * Starts a script of this folder as a process, which first prints its URL and ends when
 * its input ends.
 */
export async function startScript(
  script: string,
  args: readonly string[],
): Promise<Running> {
  const path = fileURLToPath(new URL(script, import.meta.url));
  const child = spawn(process.execPath, [path, ...args], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: child.stdout })[
    Symbol.asyncIterator
  ]();
  const { value: url } = await lines.next();
  return {
    url: String(url),
    [Symbol.asyncDispose]: async () => {
      const ended = once(child, 'exit');
      child.stdin.end();
      await ended;
    },
  };
}

/**
 * Sends requests over connections that stay open, and does as little as possible with the
 * response bodies.
 */
export class CountingClient implements Disposable {
  readonly #agent: Agent;

  constructor(connections: number) {
    this.#agent = new Agent({ keepAlive: true, maxSockets: connections });
  }

  /** @returns the number of bytes in the body */
  async read(url: string): Promise<number> {
    let bytes = 0;
    await this.#get(url, (chunk) => {
      bytes += chunk.length;
    });
    return bytes;
  }

  /** @returns the cursor of the page's last row */
  async readPage(url: string): Promise<string> {
    const chunks: Buffer[] = [];
    await this.#get(url, (chunk) => chunks.push(chunk));
    const end = Buffer.concat(chunks.slice(-2))
      .subarray(-END_BYTES)
      .toString('latin1');
    const cursor = /"endCursor":"([^"]+)"/.exec(end)?.[1];
    if (cursor === undefined) throw new Error(`${url} has no end cursor`);
    return cursor;
  }

  #get(url: string, onData: (chunk: Buffer) => void): Promise<void> {
    return new Promise((resolve, reject) => {
      get(url, { agent: this.#agent }, (response) => {
        response.on('data', onData);
        response.on('end', () => {
          if (response.statusCode === 200) resolve();
          else reject(new Error(`${url} answered ${response.statusCode}`));
        });
        response.on('error', reject);
      }).on('error', reject);
    });
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
  }
}

/** Returns the party with the longest ledger; in a sandbox that is the oldest one. */
export async function whaleOf(url: string): Promise<string> {
  const answer = (await (
    await fetch(
      `${url}/api/v2/parties?pagination.first=1&pagination.newestFirst=false`,
    )
  ).json()) as { parties: { edges: { node: { id: string } }[] } };
  return answer.parties.edges[0]?.node.id ?? '';
}
