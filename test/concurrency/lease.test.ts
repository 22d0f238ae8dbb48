import { describe, expect, test } from 'vitest';
import { FencedError, RetryableError } from '../../src/errors/errors.ts';
import { keepLease } from '../../src/concurrency/lease.ts';
import { waitFor } from '../../src/concurrency/timeouts.ts';

/**
 * Renewed many times before it could run out: a busy machine does not miss all of them.
 */
const TIMES = { leaseMs: 3_000, renewEveryMs: 50, marginMs: 500 };

function lost(signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve) =>
    signal.addEventListener('abort', () => resolve(signal.reason), {
      once: true,
    }),
  );
}

function handle(
  renew: () => Promise<void>,
): Parameters<typeof keepLease>[0] & { released: number } {
  return {
    what: 'a unit',
    takenAtMs: performance.now(),
    renew,
    released: 0,
    async release() {
      this.released += 1;
    },
  };
}

describe.concurrent('keepLease', () => {
  test('renews the lease beyond its first term and gives it back once', async () => {
    const enough = Promise.withResolvers<void>();
    const lease = handle(async () => {
      if (performance.now() > lease.takenAtMs + TIMES.leaseMs) enough.resolve();
    });
    const kept = keepLease(lease, TIMES);
    await enough.promise;
    kept.check();
    await kept[Symbol.asyncDispose]();
    expect([kept.signal.aborted, lease.released]).toEqual([false, 1]);
  });

  test('ends the work at once when another owner has the lease, and gives nothing back', async () => {
    const lease = handle(() => Promise.reject(new FencedError('a unit')));
    await using kept = keepLease(lease, TIMES);
    expect(await lost(kept.signal)).toMatchObject({ code: 'FENCED' });
    expect(() => kept.check()).toThrow(FencedError);
    expect(lease.released).toBe(0);
  });

  test('ends the work before the lease can run out while the database stays away', async () => {
    const lease = handle(() =>
      Promise.reject(
        new RetryableError('away', { code: 'DATABASE_UNREACHABLE' }),
      ),
    );
    const kept = keepLease(lease, TIMES);
    expect(await lost(kept.signal)).toMatchObject({ code: 'LEASE_LOST' });
    expect(performance.now() - lease.takenAtMs).toBeGreaterThan(
      TIMES.leaseMs - TIMES.marginMs,
    );
    await kept[Symbol.asyncDispose]();
  });

  test('finds a deadline that passed while nothing else ran', () => {
    const late = {
      ...handle(async () => undefined),
      takenAtMs: performance.now() - TIMES.leaseMs,
    };
    const kept = keepLease(late, TIMES);
    expect(() => kept.check()).toThrow(
      expect.objectContaining({ code: 'LEASE_LOST' }),
    );
    return kept[Symbol.asyncDispose]();
  });
});

describe('waiting for a lease', () => {
  test('ends with a lease that becomes free, with the signal, or after its limit', async () => {
    let tries = 0;
    const limits = { waitMs: 60_000, signal: new AbortController().signal };
    const late = (): Error => new Error('too late');
    expect(
      await waitFor(
        async () => {
          tries += 1;
          return tries < 3 ? undefined : 'free';
        },
        limits,
        late,
      ),
    ).toBe('free');
    await expect(
      waitFor(async () => undefined, { ...limits, waitMs: 1 }, late),
    ).rejects.toThrow('too late');
    const signal = AbortSignal.timeout(20);
    await expect(
      waitFor(async () => undefined, { ...limits, signal }, late),
    ).rejects.toThrow('aborted');
  });
});
