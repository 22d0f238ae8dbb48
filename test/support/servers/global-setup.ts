/**
 * Keeps the servers of one test run: each is started when a test file first requests it,
 * and all are stopped at the end.
 */
import { once } from 'node:events';
import { type Server, createServer } from 'node:http';
import type { TestProject } from 'vitest/node';
import { type Service, startPostgresService } from './postgres-service.ts';
import { type RedisCommand, chooseRedis } from './redis-binary.ts';
import { startRedisService } from './redis-service.ts';
import { REDIS_COMMAND, type ServiceName } from './services.ts';

const started = new Map<ServiceName, Promise<Service>>();
let command: Promise<RedisCommand> | undefined;
let keeper: Server | undefined;

const ANSWERS: Record<
  ServiceName | typeof REDIS_COMMAND,
  () => Promise<string>
> = {
  postgres: () => urlOf('postgres', startPostgresService),
  redis: () => urlOf('redis', () => startRedisService(redisCommand)),
  [REDIS_COMMAND]: async () => JSON.stringify(await redisCommand()),
};

export async function setup(project: TestProject): Promise<void> {
  keeper = createServer((request, response) => {
    const asked = request.url?.slice(1) ?? '';
    if (!isKnown(asked)) {
      response.writeHead(404).end();
      return;
    }
    ANSWERS[asked]().then(
      (answer) => response.end(answer),
      (error: unknown) =>
        response
          .writeHead(500)
          .end(error instanceof Error ? error.stack : String(error)),
    );
  });
  keeper.listen(0, '127.0.0.1');
  await once(keeper, 'listening');
  const address = keeper.address();
  if (typeof address !== 'object' || address === null)
    throw new Error('the keeper has no address');
  project.provide('servicesUrl', `http://127.0.0.1:${address.port}`);
}

export async function teardown(): Promise<void> {
  keeper?.closeAllConnections();
  keeper?.close();
  for (const result of await Promise.allSettled(started.values())) {
    if (result.status === 'fulfilled')
      await result.value[Symbol.asyncDispose]();
  }
  started.clear();
}

async function urlOf(
  name: ServiceName,
  start: () => Promise<Service>,
): Promise<string> {
  const service = started.get(name) ?? start();
  started.set(name, service);
  return (await service).url;
}

function redisCommand(): Promise<RedisCommand> {
  command ??= chooseRedis();
  return command;
}

function isKnown(asked: string): asked is keyof typeof ANSWERS {
  return Object.hasOwn(ANSWERS, asked);
}
