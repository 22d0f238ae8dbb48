/** Redis as other people run it: failovers behind one address, clusters, Sentinels, users, TLS. */
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, connect, type AddressInfo, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { describe, expect, test } from 'vitest';
import { openApp } from '../../src/app/app.ts';
import {
  openRedisLogin,
  untilStoppedOrRefused,
} from '../../src/app/rotating-secrets.ts';
import { startApi } from '../../src/app/serving/serve.ts';
import { type Config, readConfig } from '../../src/config/environment.ts';
import { createLog } from '../../src/logging/log.ts';
import { Queues } from '../../src/queue/queues.ts';
import { openRedisBackend } from '../../src/queue/redis-backend.ts';
import { openHome } from '../cli/mirror-home.ts';
import { makeCertificates } from '../source/certificate.ts';
import { openFreshDatabase } from '../support/database.ts';
import { farSchedule } from '../support/far-schedule.ts';
import { Child } from '../support/process.ts';
import { freePort } from '../support/servers/redis-process.ts';
import { redisCommand } from '../support/servers/services.ts';
import { waitFor } from '../support/wait-for.ts';

const PREFIX = 'lm-surroundings';
const NODES = 3;
const SLOTS = 16_384;
const command = await redisCommand();
if (!command.isReal)
  process.stderr.write(
    'Not tested in these surroundings: redis-server (only the stand-in)\n',
  );

describe.skipIf(!command.isReal)('Redis', () => {
  test.each<[string, (former: Redis, present: RealRedis) => Promise<unknown>]>([
    [
      'READONLY: the former master is a replica now',
      (former, present) => former.replicaof('127.0.0.1', present.port),
    ],
    [
      'NOREPLICAS: the former master has lost its replicas',
      (former) => former.config('SET', 'min-replicas-to-write', '2'),
    ],
    [
      'MISCONF: the former master cannot save',
      async (former) => {
        // No user can write there, root neither.
        await former.config('SET', 'dir', '/proc');
        // The save for a replica may still be in progress.
        await waitFor(
          () =>
            former.bgsave().then(
              () => true,
              () => false,
            ),
          { what: 'a save to begin' },
        );
        await waitFor(
          async () =>
            (await former.info('persistence')).includes(
              'rdb_last_bgsave_status:err',
            ),
          { what: 'a save to fail' },
        );
      },
    ],
  ])(
    'after a failover behind one address work goes on, and health is red meanwhile: %s',
    async (_, demote) => {
      await using master = await RealRedis.start([
        'enable-protected-configs yes',
        'save 3600 1000000',
      ]);
      await using replica = await RealRedis.start([
        `replicaof 127.0.0.1 ${master.port}`,
      ]);
      await waitFor(
        async () => /master_link_status:up/.test(await replica.info()),
        {
          what: 'the replica to follow',
        },
      );
      await using address = await Address.before(master.port);
      const taken: unknown[] = [];
      const queues = new Queues({
        backend: await openRedisBackend({
          url: address.url,
          prefix: PREFIX,
          onError: () => undefined,
        }),
        prefix: 'test',
        log: createLog('silent'),
      });
      try {
        queues.work('sync', 1, async ({ data }) => {
          taken.push(data);
        });
        await queues.add('sync', [
          { name: 'test', data: { n: 1 }, jobId: 'one', priority: 1 },
        ]);
        await waitFor(() => taken.length === 1, { what: 'the first job' });
        await expect(queues.probe()).resolves.toBeUndefined();

        // The address still leads there, as DNS and balancers do for a while.
        await using former = await master.client();
        await demote(former.redis, replica);
        await expect(queues.probe()).rejects.toThrow(/Redis|queue/);

        await using other = await replica.client();
        await other.redis.replicaof('NO', 'ONE');
        address.leadTo(replica.port);
        await waitFor(
          () =>
            queues.probe().then(
              () => true,
              () => false,
            ),
          { timeoutMs: 60_000, what: 'a write after the failover' },
        );
        await queues.add('sync', [
          { name: 'test', data: { n: 2 }, jobId: 'two', priority: 1 },
        ]);
        await waitFor(() => taken.length === 2, {
          timeoutMs: 60_000,
          what: 'the second job, by the worker that was there before',
        });
      } finally {
        await queues.close(1_000);
      }
    },
  );

  test('a worker goes on with the password in the file after it was changed, in either order', async () => {
    await using redis = await RealRedis.start(['requirepass first']);
    await using file = await SecretFile.with(urlOf(redis, 'first'));
    const login = openRedisLogin(file.config);
    const taken: unknown[] = [];
    const queues = new Queues({
      backend: await openRedisBackend({
        url: urlOf(redis, 'first'),
        login,
        prefix: PREFIX,
        onError: () => undefined,
      }),
      prefix: 'test',
      log: createLog('silent'),
    });
    const addJob = (jobId: string) =>
      queues.add('sync', [
        { name: 'test', data: { jobId }, jobId, priority: 1 },
      ]);
    try {
      queues.work('sync', 1, async ({ data }) => {
        taken.push(data['jobId']);
      });
      await addJob('one');
      await waitFor(() => taken.length === 1, { what: 'the first job' });

      await file.write(urlOf(redis, 'second'));
      await changePassword(redis, 'first', 'second');
      await waitFor(() => succeeds(queues.probe()), { what: 'a second login' });
      await addJob('two');
      await waitFor(() => taken.length === 2, { what: 'the second job' });

      await changePassword(redis, 'second', 'third');
      await expect(queues.proveLogin()).rejects.toThrow(
        `REDIS_URL_FILE (${file.path}), which was read again`,
      );
      expect(login?.refusedForMs()).toBeDefined();
      await file.write(urlOf(redis, 'third'));
      await waitFor(() => succeeds(queues.probe()), { what: 'a third login' });
      expect(login?.refusedForMs()).toBeUndefined();
      await addJob('three');
      await waitFor(() => taken.length === 3, { what: 'the third job' });
    } finally {
      await queues.close(1_000);
    }
  });

  test('a process whose password Redis refuses is red, and ends with the name of the file', async () => {
    await using redis = await RealRedis.start(['requirepass first']);
    await using file = await SecretFile.with(urlOf(redis, 'first'));
    await using database = await openFreshDatabase();
    const stop = new AbortController();
    const config = readConfig({
      env: {
        REDIS_URL_FILE: file.path,
        DATABASE_URL: database.url,
        DATA_DIR: file.dir,
        API_PORT: '0',
        SCHEDULE: farSchedule(),
      },
      cwd: file.dir,
    });
    const log = createLog('silent');
    await using app = await openApp({ config, log, signal: stop.signal });
    await app.jobWorker.startAndRegister();
    await using api = await startApi(app);
    const isReady = async (): Promise<boolean> =>
      (await fetch(new URL('readyz', api.url))).status === 200;
    await waitFor(isReady, { what: 'a ready process' });

    await changePassword(redis, 'first', 'second');
    await waitFor(async () => !(await isReady()), { what: 'a red process' });
    await expect(
      untilStoppedOrRefused(
        app.neededSecrets,
        { log, signal: stop.signal },
        { refusedMaxMs: 0, checkMs: 10 },
      ),
    ).rejects.toMatchObject({
      code: 'SECRET_REFUSED',
      message: expect.stringContaining(`REDIS_URL_FILE (${file.path})`),
    });

    await file.write(urlOf(redis, 'second'));
    await waitFor(isReady, { what: 'a ready process again' });
    const state = { n: 1 };
    await app.state.set('k', state, 60_000);
    expect(await app.state.get('k')).toEqual(state);
  });

  test.each<[string, readonly string[], string, string]>([
    [
      'a node that has not joined its cluster yet',
      ['cluster-enabled yes'],
      '',
      'it is part of a cluster',
    ],
    [
      'a wrong password',
      ['requirepass right'],
      ':unknown-word@',
      'it refuses the user in REDIS_URL (WRONGPASS',
    ],
    [
      'no password',
      ['requirepass right'],
      '',
      'it refuses the user in REDIS_URL (NOAUTH',
    ],
    [
      'no rights',
      ['user poor on >right ~* +ping +info'],
      'poor:right@',
      'it refuses the user in REDIS_URL (NOPERM',
    ],
  ])('is refused at once in one line: %s', async (_, args, user, line) => {
    await using redis = await RealRedis.start(args);
    const url = `redis://${user}127.0.0.1:${redis.port}`;
    expect(await orderAt(url)).toEqual(refusedWith(line));
  });

  test('each of the three nodes of a cluster is refused at once in one line, and no key is written', async () => {
    await using nodes = new AsyncDisposableStack();
    const cluster: RealRedis[] = [];
    for (let left = NODES; left > 0; left -= 1)
      cluster.push(nodes.use(await RealRedis.start(['cluster-enabled yes'])));
    await joinCluster(cluster);
    for (const node of cluster) {
      const url = `redis://127.0.0.1:${node.port}`;
      expect(await orderAt(url)).toEqual(
        refusedWith('it is part of a cluster'),
      );
      await using client = await node.client();
      expect(await client.redis.dbsize()).toBe(0);
    }
  });

  test('is refused at once in one line: a Sentinel that watches a master', async () => {
    await using master = await RealRedis.start();
    await using sentinel = await RealRedis.start(
      [`sentinel monitor mirror 127.0.0.1 ${master.port} 1`],
      true,
    );
    const url = `redis://127.0.0.1:${sentinel.port}`;
    expect(await orderAt(url)).toEqual(refusedWith('it is a Sentinel'));
  });

  test('is refused at once in one line: a certificate that nobody vouches for', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'lm-redis-tls-'));
    try {
      const { authority, cert, key } = makeCertificates();
      await writeFile(join(dir, 'ca.crt'), authority);
      await writeFile(join(dir, 'tls.crt'), cert);
      await writeFile(join(dir, 'tls.key'), key);
      const port = await freePort();
      await using redis = await RealRedis.start([
        `tls-port ${port}`,
        `tls-cert-file ${join(dir, 'tls.crt')}`,
        `tls-key-file ${join(dir, 'tls.key')}`,
        `tls-ca-cert-file ${join(dir, 'ca.crt')}`,
        'tls-auth-clients no',
      ]);
      expect(redis.port).not.toBe(port);
      expect(await orderAt(`rediss://127.0.0.1:${port}`)).toEqual(
        refusedWith('its certificate is not accepted'),
      );
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  });
});

/** Shares out all slots among the nodes, and waits until each node serves the cluster. */
async function joinCluster(nodes: readonly RealRedis[]): Promise<void> {
  const [first] = nodes;
  if (first === undefined) return;
  const share = Math.ceil(SLOTS / nodes.length);
  for (const [index, node] of nodes.entries()) {
    await using client = await node.client();
    const from = index * share;
    const to = Math.min(from + share, SLOTS) - 1;
    await client.redis.call(
      'CLUSTER',
      'ADDSLOTSRANGE',
      String(from),
      String(to),
    );
    // Two masters that begin with the same epoch would have to settle it first.
    await client.redis.call('CLUSTER', 'SET-CONFIG-EPOCH', String(index + 1));
    await client.redis.cluster('MEET', '127.0.0.1', first.port);
  }
  for (const node of nodes) {
    await using client = await node.client();
    await waitFor(
      async () => {
        const info = await client.redis.cluster('INFO');
        return (
          info.includes('cluster_state:ok') &&
          info.includes(`cluster_size:${nodes.length}`)
        );
      },
      { what: `the node at ${node.port} to serve the cluster` },
    );
  }
}

/** How `nightly` ends at this Redis: its code, its last line, and whether it has waited. */
async function orderAt(url: string) {
  await using database = await openFreshDatabase();
  await using home = await openHome({
    SOURCE_URL: 'http://127.0.0.1:1',
    DATABASE_URL: database.url,
    REDIS_URL: url,
  });
  const { code, stderr } = await home.run(['nightly']);
  const lines = stderr.trim().split('\n');
  return {
    code,
    line: lines.at(-1),
    // The database, which is busy with other tests, may be waited for.
    waits: lines.filter(
      (line) => line.includes('Not reachable yet') && /redis/i.test(line),
    ),
  };
}

function urlOf({ port }: RealRedis, password: string): string {
  return `redis://:${password}@127.0.0.1:${port}`;
}

/** As after a rotation: nobody has the old one, and no connection of before is left. */
async function changePassword(
  { port }: RealRedis,
  from: string,
  to: string,
): Promise<void> {
  const admin = new Redis(port, '127.0.0.1', { password: from });
  try {
    await admin.config('SET', 'requirepass', to);
    await admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
  } finally {
    admin.disconnect();
  }
}

function succeeds(work: Promise<unknown>): Promise<boolean> {
  return work.then(
    () => true,
    () => false,
  );
}

/** A file that REDIS_URL_FILE names, in a folder of its own. */
class SecretFile implements AsyncDisposable {
  readonly dir: string;
  readonly path: string;

  private constructor(dir: string) {
    this.dir = dir;
    this.path = join(dir, 'redis-url');
  }

  static async with(content: string): Promise<SecretFile> {
    const file = new SecretFile(await mkdtemp(join(tmpdir(), 'lm-secret-')));
    await file.write(content);
    return file;
  }

  get config(): Config {
    return readConfig({ env: { REDIS_URL_FILE: this.path }, cwd: this.dir });
  }

  async write(content: string): Promise<void> {
    await writeFile(this.path, `${content}\n`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.dir, { recursive: true, force: true });
  }
}

function refusedWith(line: string) {
  return { code: 1, line: expect.stringContaining(line), waits: [] };
}

/** A redis-server with options of its own. */
class RealRedis implements AsyncDisposable {
  readonly port: number;
  readonly #dir: string;
  readonly #child: Child;

  private constructor(port: number, dir: string, child: Child) {
    this.port = port;
    this.#dir = dir;
    this.#child = child;
  }

  static async start(
    lines: readonly string[] = [],
    isSentinel = false,
  ): Promise<RealRedis> {
    const dir = await mkdtemp(join(tmpdir(), 'lm-redis-'));
    const port = await freePort();
    const file = join(dir, 'redis.conf');
    const own = [`port ${port}`, 'bind 127.0.0.1', `dir ${dir}`];
    await writeFile(file, [...own, ...lines, ''].join('\n'));
    const child = new Child(
      command.command,
      [...command.args, file, ...(isSentinel ? ['--sentinel'] : [])],
      {
        env: command.env,
        cwd: dir,
      },
    );
    await child.waitForLine(
      isSentinel ? /Sentinel ID/ : /Ready to accept connections/,
    );
    return new RealRedis(port, dir, child);
  }

  async client(): Promise<{ redis: Redis } & AsyncDisposable> {
    const redis = new Redis(this.port, '127.0.0.1');
    return {
      redis,
      [Symbol.asyncDispose]: async () => redis.disconnect(),
    };
  }

  async info(): Promise<string> {
    await using client = await this.client();
    return await client.redis.info('replication');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#child[Symbol.asyncDispose]();
    await rm(this.#dir, { recursive: true, force: true });
  }
}

/** One address that leads to another server after a failover; open connections stay where they are. */
class Address implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets = new Set<{ destroy(): unknown }>();
  #port: number;

  private constructor(port: number) {
    this.#port = port;
    this.#server = createServer((near) => {
      const far = connect(this.#port, '127.0.0.1');
      for (const socket of [near, far]) {
        this.#sockets.add(socket);
        socket.on('error', () => undefined);
        socket.on('close', () => {
          near.destroy();
          far.destroy();
        });
      }
      near.pipe(far).pipe(near);
    });
  }

  static async before(port: number): Promise<Address> {
    const address = new Address(port);
    address.#server.listen(0, '127.0.0.1');
    await once(address.#server, 'listening');
    return address;
  }

  get url(): string {
    return `redis://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  leadTo(port: number): void {
    this.#port = port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }
}
