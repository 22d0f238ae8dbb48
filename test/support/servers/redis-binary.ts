/**
 * Chooses the Redis that the tests can start here: this machine's `redis-server`,
 * Debian's package unpacked into a cache folder (no rights needed), or, as the last
 * resort, a stand-in in JavaScript.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { unpackDebian, unpackedEnv } from '../stores/debian-packages.ts';

export interface RedisCommand {
  readonly command: string;
  /**
   * Arguments before the options of redis-server. The stand-in accepts those options but
   * uses only the ones that it needs.
   */
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** False for the stand-in, which keeps data only in memory and writes no dump. */
  readonly isReal: boolean;
}

const run = promisify(execFile);
const PROBE_TIMEOUT_MS = 5_000;

/**
 * Chooses once for the whole run. The server keeper calls this and passes the result to
 * the test files.
 */
export async function chooseRedis(): Promise<RedisCommand> {
  let reason = 'none on the PATH, and the unpacked one does not start';
  try {
    for (const candidate of [onPath, fromDebian]) {
      const found = await candidate();
      if (found !== undefined && (await works(found))) return found;
    }
  } catch (error) {
    reason =
      error instanceof Error
        ? (error.message.split('\n', 1)[0] ?? '')
        : String(error);
  }
  process.stderr.write(
    `Tests use a Redis stand-in in JavaScript: no redis-server here (${reason})\n`,
  );
  const script = fileURLToPath(new URL('redis-stand-in.ts', import.meta.url));
  return { command: process.execPath, args: [script], env: {}, isReal: false };
}

function onPath(): RedisCommand | undefined {
  const folders = (process.env['PATH'] ?? '')
    .split(delimiter)
    .filter((folder) => folder !== '');
  const command = folders
    .map((folder) => join(folder, 'redis-server'))
    .find((path) => existsSync(path));
  return command === undefined
    ? undefined
    : { command, args: [], env: {}, isReal: true };
}

async function works({ command, env }: RedisCommand): Promise<boolean> {
  return run(command, ['--version'], {
    env: { ...process.env, ...env },
    timeout: PROBE_TIMEOUT_MS,
  }).then(
    () => true,
    () => false,
  );
}

async function fromDebian(): Promise<RedisCommand> {
  const root = await unpackDebian('redis-server', ['redis-server']);
  return {
    command: join(root, 'usr', 'bin', 'redis-server'),
    args: [],
    env: await unpackedEnv(root),
    isReal: true,
  };
}
