import { expect, it } from 'vitest';
import { redisAdvice } from '../../src/queue/redis-and-postgres.ts';

const info = (version: string, policy = 'noeviction', aof = 1): string =>
  `# Server\r\nredis_version:${version}\r\n# Memory\r\nmaxmemory_policy:${policy}\r\n# Persistence\r\naof_enabled:${aof}\r\n`;

it.each(['6.2.0', '7.0.15', '8.2', '10.0.1'])('is content with Redis %s that keeps everything', (version) => {
  expect(redisAdvice(info(version))).toEqual([]);
});

it.each(['6.0.16', '5.0.7', '4.0'])('says that Redis %s is too old', (version) => {
  expect(redisAdvice(info(version))).toEqual([
    `Redis is ${version}: BullMQ wants 6.2 at least; use 7 or later`,
  ]);
});

it('the advice on Redis names every setting that loses jobs', () => {
  expect(redisAdvice(info('7.4.0', 'allkeys-lru', 0))).toEqual([
    expect.stringContaining('maxmemory-policy is allkeys-lru'),
    expect.stringContaining('appendonly is off'),
  ]);
});

it('the advice on Redis says nothing of settings that Redis does not show', () => {
  expect(redisAdvice('# Server\r\n')).toEqual([]);
});
