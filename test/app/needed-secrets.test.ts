/** The end of a process that uses secrets which are refused. */
import { expect, test } from 'vitest';
import { untilStoppedOrRefused } from '../../src/app/rotating-secrets.ts';
import { createLog } from '../../src/logging/log.ts';

test('a process that is told to stop ends without an error, though a secret is refused', async () => {
  const stop = new AbortController();
  let proofs = 0;
  const refused = {
    secret: { name: 'REDIS_URL', refusedForMs: () => 3_600_000 },
    part: 'queues',
    what: 'Redis',
    prove: async () => {
      proofs += 1;
    },
  } as const;
  const context = { log: createLog('silent'), signal: stop.signal };
  const ended = untilStoppedOrRefused([refused], context);
  stop.abort();
  await expect(ended).resolves.toBeUndefined();
  expect(proofs).toBe(0);
});
