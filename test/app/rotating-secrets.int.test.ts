/** A database whose password changes while a process works with it. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openApp } from '../../src/app/app.ts';
import { untilStoppedOrRefused } from '../../src/app/rotating-secrets.ts';
import { serveWorkerHealth } from '../../src/app/serving/serve-worker-health.ts';
import { startApi } from '../../src/app/serving/serve.ts';
import { readConfig } from '../../src/config/environment.ts';
import { createLog } from '../../src/logging/log.ts';
import { openFreshDatabase } from '../support/database.ts';
import { farSchedule } from '../support/far-schedule.ts';
import { waitFor } from '../support/wait-for.ts';

const SHORT = { refusedMaxMs: 0, checkMs: 10 };

test('a worker whose database password changes goes on with what the file holds', async () => {
  await using world = await openWorld();
  const { app } = world;
  await world.changePassword();
  await world.writeFile();
  // The first questions may still meet connections that the server has ended.
  await waitFor(async () => (await ready(world.url)).ready, {
    what: 'a ready process',
  });
  await app.queues.probe();
  await expect(app.warehouse.proveLogin()).resolves.toBeUndefined();
  expect(app.neededSecrets.map(({ secret }) => secret.refusedForMs())).toEqual([
    undefined,
  ]);
});

test('a process whose database password is refused is red, and ends with the name of the file', async () => {
  await using world = await openWorld();
  const { app } = world;
  const port = world.stack.use(await serveWorkerHealth(app, 0)).port;
  await waitFor(async () => (await statusOf(port)) === 200, {
    what: 'a healthy worker',
  });
  await world.changePassword();
  await waitFor(async () => (await statusOf(port)) === 503, {
    what: 'a worker that reports the refusal',
  });
  await expect(ready(world.url)).resolves.toMatchObject({
    ready: false,
    parts: { database: 'failed' },
  });
  const context = { log: app.log, signal: new AbortController().signal };
  await expect(
    untilStoppedOrRefused(app.neededSecrets, context, SHORT),
  ).rejects.toMatchObject({
    code: 'SECRET_REFUSED',
    message: expect.stringContaining(`DATABASE_URL_FILE (${world.path})`),
  });
  await world.writeFile();
  await waitFor(async () => (await ready(world.url)).ready, {
    what: 'a ready process',
  });
  await waitFor(async () => (await statusOf(port)) === 200, {
    what: 'a healthy worker again',
  });
});

test('a process is told to stop while no secret is refused, and ends without an error', async () => {
  await using world = await openWorld();
  const { app } = world;
  const stop = new AbortController();
  const context = { log: app.log, signal: stop.signal };
  const ended = untilStoppedOrRefused(app.neededSecrets, context);
  stop.abort();
  await expect(ended).resolves.toBeUndefined();
});

async function ready(url: string) {
  const answer = await fetch(new URL('readyz', url));
  return (await answer.json()) as { ready: boolean };
}

async function statusOf(port: number): Promise<number> {
  const { status } = await fetch(`http://127.0.0.1:${port}/`);
  return status;
}

/** An app that works and serves, as a role of its own. */
async function openWorld() {
  await using stack = new AsyncDisposableStack();
  const database = stack.use(await openFreshDatabase());
  const role = `rotating_${randomBytes(6).toString('hex')}`;
  const password = () => randomBytes(12).toString('hex');
  let current = password();
  await database.pool.query(
    `create role ${role} superuser login password '${current}'`,
  );
  const dir = await mkdtemp(join(tmpdir(), 'lm-rotating-'));
  stack.defer(() => rm(dir, { recursive: true, force: true }));
  const path = join(dir, 'database-url');
  const write = async (): Promise<void> => {
    const url = new URL(database.url);
    url.username = role;
    url.password = current;
    await writeFile(path, `${url.href}\n`);
  };
  await write();
  const config = readConfig({
    env: {
      DATABASE_URL_FILE: path,
      DATA_DIR: dir,
      API_PORT: '0',
      SCHEDULE: farSchedule(),
    },
    cwd: dir,
  });
  const stop = new AbortController();
  const log = createLog('silent');
  const app = stack.use(await openApp({ config, log, signal: stop.signal }));
  await app.jobWorker.startAndRegister();
  const { url } = stack.use(await startApi(app));
  const owned = stack.move();
  return {
    app,
    url,
    path,
    stack: owned,
    writeFile: write,
    /** As after a rotation: nobody has the old one, and no connection of before is left. */
    changePassword: async (): Promise<void> => {
      current = password();
      await database.pool.query(`alter role ${role} password '${current}'`);
      await database.pool.query(
        'select pg_terminate_backend(pid) from pg_stat_activity where usename = $1',
        [role],
      );
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
