/** Keeps the servers of one run of tests: each started when a test file first asks, all stopped at the end. */
import { once } from 'node:events';
import { type Server, createServer } from 'node:http';
import type { TestProject } from 'vitest/node';
import { type Service, startPostgresService } from './postgres-service.ts';
import { startRedisService } from './redis-service.ts';
import type { ServiceName } from './services.ts';

const STARTERS: Record<ServiceName, () => Promise<Service>> = {
  postgres: startPostgresService,
  redis: startRedisService,
};

const started = new Map<ServiceName, Promise<Service>>();
let keeper: Server | undefined;

export async function setup(project: TestProject): Promise<void> {
  keeper = createServer((request, response) => {
    const name = request.url?.slice(1) ?? '';
    if (!isServiceName(name)) {
      response.writeHead(404).end();
      return;
    }
    const service = started.get(name) ?? STARTERS[name]();
    started.set(name, service);
    service.then(
      ({ url }) => response.end(url),
      (error: unknown) => response.writeHead(500).end(error instanceof Error ? error.stack : String(error)),
    );
  });
  keeper.listen(0, '127.0.0.1');
  await once(keeper, 'listening');
  const address = keeper.address();
  if (typeof address !== 'object' || address === null) throw new Error('the keeper has no address');
  project.provide('servicesUrl', `http://127.0.0.1:${address.port}`);
}

export async function teardown(): Promise<void> {
  keeper?.closeAllConnections();
  keeper?.close();
  for (const result of await Promise.allSettled(started.values())) {
    if (result.status === 'fulfilled') await result.value[Symbol.asyncDispose]();
  }
  started.clear();
}

function isServiceName(name: string): name is ServiceName {
  return name in STARTERS;
}
