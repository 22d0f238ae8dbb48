import { describe } from 'vitest';
import { freshRedis } from '../../support/servers/redis.ts';
import { killedCases } from './killed-cases.ts';

const redis = await freshRedis();

describe('queues in Redis', () => {
  killedCases(redis.url);
});
