import { expect, test } from 'vitest';
import { redisAdvice } from '../../src/queue/redis-backend.ts';

const info = (policy = 'noeviction', aof = 1): string =>
  `# Server\r\nredis_version:7.4.0\r\n# Memory\r\nmaxmemory_policy:${policy}\r\n# Persistence\r\naof_enabled:${aof}\r\n`;

test('is content with a Redis that keeps everything', () => {
  expect(redisAdvice(info())).toEqual([]);
});

test('the advice on Redis names every setting that loses jobs', () => {
  expect(redisAdvice(info('allkeys-lru', 0))).toEqual([
    expect.stringContaining('maxmemory-policy is allkeys-lru'),
    expect.stringContaining('appendonly is off'),
  ]);
});

test('the advice on Redis says nothing of settings that Redis does not show', () => {
  expect(redisAdvice('# Server\r\n')).toEqual([]);
});
