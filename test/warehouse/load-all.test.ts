/**
 * Lanes side by side: what stops the first is the reason, whatever the other meets
 * because of it.
 */
import { describe, expect, test } from 'vitest';
import { UnreachableError } from '../../src/errors/errors.ts';
import { loadAll } from '../../src/warehouse/load-all.ts';
import type { LoadDeps } from '../../src/warehouse/load-all.ts';

const AWAY = new UnreachableError('Cannot read: no connection', {
  code: 'OBJECT_STORE_UNREACHABLE',
});

describe('loadAll', () => {
  test.each([
    ['first', ['broken', 'waiting']],
    ['second', ['waiting', 'broken']],
  ])(
    'tells why the store was lost where the %s lane met it',
    async (_, parties) => {
      const { promise: isWaiting, resolve: waits } =
        Promise.withResolvers<void>();
      const { promise: isLost, resolve: loses } = Promise.withResolvers<void>();
      const toLoad: LoadDeps['repository']['toLoad'] = async (partyId) => {
        if (partyId === 'broken') {
          await isWaiting;
          loses();
          throw AWAY;
        }
        waits();
        await isLost;
        await new Promise((resolve) => setImmediate(resolve));
        // As the SDK answers to a signal: with an error of its own.
        throw Object.assign(new Error('Request aborted'), {
          name: 'AbortError',
        });
      };
      const repository = { toLoad, partiesToLoad: async () => parties };
      const deps = { repository, objects: {} } as unknown as LoadDeps;
      const loading = loadAll(deps, new AbortController().signal);
      await expect(loading).rejects.toBe(AWAY);
    },
  );
});
