/** Waiting for a service that is away: how long, and counted from when. */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { untilReachable } from '../../src/app/base.ts';
import { UnreachableError } from '../../src/errors/errors.ts';
import { createLog } from '../../src/logging/log.ts';

const AWAY = new UnreachableError(
  'Cannot reach the database at db; check DATABASE_URL',
  {
    code: 'AWAY',
  },
);
const options = {
  log: createLog('silent'),
  signal: new AbortController().signal,
  reachableMaxMs: 400,
};

describe('waiting for a service', () => {
  test('counts from the first failure: a process that stood still in an attempt tries again', async () => {
    let attempts = 0;
    const open = async (): Promise<string> => {
      attempts += 1;
      if (attempts > 1) return 'open';
      await sleep(2 * options.reachableMaxMs);
      throw AWAY;
    };
    expect(await untilReachable('database', options, open)).toBe('open');
  });

  test('ends with the last error once the service has been away for long', async () => {
    await expect(
      untilReachable('database', options, () => Promise.reject(AWAY)),
    ).rejects.toBe(AWAY);
  });

  test('does not ask again what fails for another reason', async () => {
    let attempts = 0;
    const open = (): Promise<string> => {
      attempts += 1;
      return Promise.reject(new Error('broken'));
    };
    await expect(untilReachable('database', options, open)).rejects.toThrow(
      'broken',
    );
    expect(attempts).toBe(1);
  });
});
