/** Services that refuse the secrets which a process works with. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { openApp } from '../../src/app/app.ts';
import { untilStoppedOrRefused } from '../../src/app/rotating-secrets.ts';
import { serveWorkerHealth } from '../../src/app/serving/serve-worker-health.ts';
import { startApi } from '../../src/app/serving/serve.ts';
import { readConfig } from '../../src/config/environment.ts';
import { createLog } from '../../src/logging/log.ts';
import {
  makeCertificates,
  type TestCertificates,
} from '../source/certificate.ts';
import { pageJson } from '../source/wire/wire-server.ts';
import { openFreshDatabase } from '../support/database.ts';
import { farSchedule } from '../support/far-schedule.ts';
import { CREDENTIALS, S3Double } from '../support/stores/s3-double.ts';
import type { Credentials } from '../support/stores/s3-signature.ts';
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

test('a process whose S3 keys are refused is red, and ends with the name of their file', async () => {
  await using double = await S3Double.start();
  await using world = await openWorld({ s3Endpoint: double.endpoint });
  const { app } = world;
  const port = world.stack.use(await serveWorkerHealth(app, 0)).port;
  await waitFor(async () => (await ready(world.url)).ready, {
    what: 'a ready process',
  });

  double.credentials = { accessKeyId: 'other', secretAccessKey: 'keys' };
  await waitFor(async () => !(await ready(world.url)).ready, {
    what: 'a process that is not ready',
  });
  await expect(ready(world.url)).resolves.toMatchObject({
    parts: { objects: 'failed' },
  });
  expect(await statusOf(port)).toBe(503);
  const context = { log: app.log, signal: new AbortController().signal };
  await expect(
    untilStoppedOrRefused(app.neededSecrets, context, SHORT),
  ).rejects.toMatchObject({
    code: 'SECRET_REFUSED',
    message: expect.stringContaining('AWS_SHARED_CREDENTIALS_FILE ('),
  });

  await world.writeS3Credentials(double.credentials);
  await waitFor(async () => (await ready(world.url)).ready, {
    what: 'a ready process again',
  });
  expect(await statusOf(port)).toBe(200);
});

test.each([400, 403])(
  'a worker whose client certificate the source refuses with %i is red, and ends with the names of the files',
  async (status) => {
    await using source = await openStrictSource(status);
    await using world = await openWorld({ source });
    const { app } = world;
    const { signal } = new AbortController();
    const port = world.stack.use(await serveWorkerHealth(app, 0)).port;
    await app.jobs.stages.clock({ signal });
    expect(await statusOf(port)).toBe(200);

    source.accept(source.next);
    await app.jobs.stages.clock({ signal }).catch(() => undefined);
    expect(await statusOf(port)).toBe(503);
    await waitFor(async () => !(await ready(world.url)).ready, {
      what: 'a process that is not ready',
    });
    await expect(ready(world.url)).resolves.toMatchObject({
      parts: { source: 'failed', database: 'ok' },
    });
    const context = { log: app.log, signal };
    await expect(
      untilStoppedOrRefused(app.neededSecrets, context, SHORT),
    ).rejects.toMatchObject({
      code: 'SECRET_REFUSED',
      message: expect.stringContaining(
        `SOURCE_CLIENT_CERT_FILE (${source.certPath}) and SOURCE_CLIENT_KEY_FILE`,
      ),
    });

    // A process that also serves goes on, and is told to stop as usual.
    const stop = new AbortController();
    const goesOn = untilStoppedOrRefused(
      app.neededSecrets,
      { log: app.log, signal: stop.signal },
      { ...SHORT, canDoWithout: ['source'] },
    );
    await source.write(source.next);
    await app.jobs.stages.clock({ signal });
    await waitFor(async () => (await ready(world.url)).ready, {
      what: 'a ready process again',
    });
    expect(await statusOf(port)).toBe(200);
    stop.abort();
    await expect(goesOn).resolves.toBeUndefined();
  },
);

test('a process is told to stop while no secret is refused, and ends without an error', async () => {
  await using world = await openWorld();
  const { app } = world;
  const stop = new AbortController();
  const context = { log: app.log, signal: stop.signal };
  const ended = untilStoppedOrRefused(app.neededSecrets, context);
  stop.abort();
  await expect(ended).resolves.toBeUndefined();
});

test('the API goes by the tokens in their files, and ends the sessions of those before', async () => {
  await using world = await openWorld({
    tokens: { write: 'first-write-token-1', read: 'first-read-token-01' },
  });
  const { url, tokens } = world;
  const ask = (headers: Record<string, string>) =>
    fetch(new URL('mirror/runs', url), { headers }).then(
      ({ status }) => status,
    );
  const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
  const login = await fetch(new URL('login', url), {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ token: 'first-write-token-1' }),
  });
  const cookie = (login.headers.get('set-cookie') ?? '').split(';', 1)[0] ?? '';
  expect([
    await ask(bearer('first-write-token-1')),
    await ask(bearer('first-read-token-01')),
    await ask({ cookie }),
  ]).toEqual([200, 200, 200]);

  await tokens.write('second-write-token-2');
  // Asked with the former token: a wrong one would count as a guess each time.
  await waitFor(
    async () => (await ask(bearer('first-write-token-1'))) === 401,
    { what: 'the former token to be refused' },
  );
  expect([
    await ask(bearer('second-write-token-2')),
    await ask(bearer('first-read-token-01')),
    await ask({ cookie }),
  ]).toEqual([200, 200, 401]);

  await tokens.read('second-read-token-02');
  await waitFor(
    async () => (await ask(bearer('first-read-token-01'))) === 401,
    { what: 'the former token for reading to be refused' },
  );
  expect(await ask(bearer('second-read-token-02'))).toBe(200);
});

async function ready(url: string) {
  const answer = await fetch(new URL('readyz', url));
  return (await answer.json()) as { ready: boolean };
}

async function statusOf(port: number): Promise<number> {
  const { status } = await fetch(`http://127.0.0.1:${port}/`);
  return status;
}

/** A source that answers requests with `status` unless it accepts their certificate. */
async function openStrictSource(status: number) {
  const server = makeCertificates();
  const first = makeCertificates();
  const next = makeCertificates();
  const dir = await mkdtemp(join(tmpdir(), 'lm-strict-source-'));
  const [caPath, certPath, keyPath] = ['ca.crt', 'tls.crt', 'tls.key'].map(
    (name) => join(dir, name),
  ) as [string, string, string];
  await writeFile(caPath, server.authority);
  const write = async ({ cert, key }: TestCertificates): Promise<void> => {
    await writeFile(certPath, cert);
    await writeFile(keyPath, key);
  };
  await write(first);
  const page = pageJson('parties', [{ id: 'ab'.repeat(32) }]);
  const tls = { key: server.key, cert: server.cert };
  const listening = createServer(
    {
      ...tls,
      ca: first.authority,
      requestCert: true,
      rejectUnauthorized: false,
    },
    (request, response) => {
      const { authorized } = request.socket as TLSSocket;
      if (!authorized)
        response.writeHead(status, { connection: 'close' }).end();
      else
        response
          .writeHead(200, { 'content-type': 'application/json' })
          .end(page);
    },
  );
  listening.listen(0, '127.0.0.1');
  await once(listening, 'listening');
  const { port } = listening.address() as AddressInfo;
  return {
    certPath,
    next,
    write,
    accept: ({ authority }: TestCertificates): void => {
      listening.setSecureContext({ ...tls, ca: authority });
      listening.closeAllConnections();
    },
    settings: {
      SOURCE_URL: `https://127.0.0.1:${port}`,
      SOURCE_CLIENT_CERT_FILE: certPath,
      SOURCE_CLIENT_KEY_FILE: keyPath,
      NODE_EXTRA_CA_CERTS: caPath,
    },
    [Symbol.asyncDispose]: async (): Promise<void> => {
      listening.close();
      listening.closeAllConnections();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** An app that works and serves, as a role of its own. */
async function openWorld({
  tokens,
  s3Endpoint,
  source,
}: {
  tokens?: { write: string; read: string };
  s3Endpoint?: string;
  source?: { readonly settings: Readonly<Record<string, string>> };
} = {}) {
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
  const tokenFiles = {
    write: join(dir, 'api-token'),
    read: join(dir, 'api-read-token'),
  };
  if (tokens !== undefined) {
    await writeFile(tokenFiles.write, tokens.write);
    await writeFile(tokenFiles.read, tokens.read);
  }
  const s3Path = join(dir, 's3-credentials');
  const writeS3Credentials = ({ accessKeyId, secretAccessKey }: Credentials) =>
    writeFile(
      s3Path,
      `[default]\naws_access_key_id = ${accessKeyId}\n` +
        `aws_secret_access_key = ${secretAccessKey}\n`,
    );
  if (s3Endpoint !== undefined) {
    await writeS3Credentials(CREDENTIALS);
    // The SDK looks for its files in the environment of the process.
    vi.stubEnv('AWS_SHARED_CREDENTIALS_FILE', s3Path);
    stack.defer(() => void vi.unstubAllEnvs());
  }
  const config = readConfig({
    env: {
      ...(s3Endpoint === undefined
        ? {}
        : {
            OBJECT_STORE_URL: `s3://bucket/mirror?region=eu-test-1&endpoint=${s3Endpoint}`,
            AWS_SHARED_CREDENTIALS_FILE: s3Path,
          }),
      ...source?.settings,
      DATABASE_URL_FILE: path,
      DATA_DIR: dir,
      API_PORT: '0',
      SCHEDULE: farSchedule(),
      ...(tokens === undefined
        ? {}
        : {
            API_TOKEN_FILE: tokenFiles.write,
            API_READ_TOKEN_FILE: tokenFiles.read,
          }),
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
    writeS3Credentials,
    tokens: {
      write: (token: string) => writeFile(tokenFiles.write, token),
      read: (token: string) => writeFile(tokenFiles.read, token),
    },
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
