/**
 * One Redis for a whole test run: TEST_REDIS_URL, Docker, or a process of the given
 * command.
 */
import { inDockerOr } from './docker.ts';
import type { Service } from './postgres-service.ts';
import type { RedisCommand } from './redis-binary.ts';
import { RedisProcess } from './redis-process.ts';

const IMAGE = 'redis:8-alpine';

export async function startRedisService(
  command: () => Promise<RedisCommand>,
): Promise<Service> {
  const given = process.env['TEST_REDIS_URL'];
  if (given !== undefined && given !== '')
    return { url: given, [Symbol.asyncDispose]: async () => undefined };
  return inDockerOr('Redis', startInDocker, async () =>
    RedisProcess.start(await command()),
  );
}

async function startInDocker(): Promise<Service> {
  const { GenericContainer } = await import('testcontainers');
  const container = await new GenericContainer(IMAGE)
    .withExposedPorts(6379)
    .start();
  return {
    url: `redis://${container.getHost()}:${container.getMappedPort(6379)}`,
    [Symbol.asyncDispose]: async () => {
      await container.stop();
    },
  };
}
