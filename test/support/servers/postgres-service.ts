/** One Postgres for a whole test run: TEST_DATABASE_URL, Docker, or the embedded one. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startEmbeddedPostgres } from '../../../src/embedded/postgres.ts';
import { inDockerOr } from './docker.ts';

/** A server for all test files. Disposing ends it. */
export interface Service extends AsyncDisposable {
  readonly url: string;
}

const SILENT = { info: () => undefined, warn: () => undefined };
const IMAGE = 'postgres:18-alpine';

export async function startPostgresService(): Promise<Service> {
  const given = process.env['TEST_DATABASE_URL'];
  if (given !== undefined && given !== '')
    return { url: given, [Symbol.asyncDispose]: async () => undefined };
  return inDockerOr('Postgres', startInDocker, startEmbedded);
}

async function startInDocker(): Promise<Service> {
  const { GenericContainer, Wait } = await import('testcontainers');
  const container = await new GenericContainer(IMAGE)
    .withEnvironment({ POSTGRES_PASSWORD: 'test' })
    .withCommand(['postgres', '-c', 'fsync=off', '-c', 'max_connections=500'])
    .withExposedPorts(5432)
    .withWaitStrategy(Wait.forLogMessage(/ready to accept connections/, 2))
    .start();
  return {
    url: `postgres://postgres:test@${container.getHost()}:${container.getMappedPort(5432)}/postgres`,
    [Symbol.asyncDispose]: async () => {
      await container.stop();
    },
  };
}

async function startEmbedded(): Promise<Service> {
  const dataDir = await mkdtemp(join(tmpdir(), 'ledger-mirror-test-'));
  const server = await startEmbeddedPostgres({
    dataDir,
    log: SILENT,
    durable: false,
  });
  return {
    url: server.connectionString,
    [Symbol.asyncDispose]: async () => {
      await server[Symbol.asyncDispose]();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}
