import { describe } from 'vitest';
import { killedCases } from './killed-cases.ts';

describe('queues in Postgres', () => {
  killedCases(undefined);
});
