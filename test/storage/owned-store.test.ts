/** How long an answer about the ownership counts: less for what cannot be undone. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import { OwnedStore } from '../../src/storage/owned-store.ts';
import { withOverrides } from '../support/with-overrides.ts';

const { signal } = new AbortController();

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }));
afterEach(() => void vi.useRealTimers());

test('a former owner removes nothing seconds after another took over, in the middle of its work', async () => {
  let isOwner = true;
  const done: string[] = [];
  const inner = withOverrides({} as ObjectStore, {
    replaceBytes: async (key) => void done.push(`write ${key}`),
    remove: async (key) => void done.push(`remove ${key}`),
  });
  const store = new OwnedStore(inner, async () => {
    if (!isOwner) throw new Error('another database owns it');
  });
  await store.replaceBytes('a', Buffer.from(''), signal);
  await store.remove('b', signal);

  isOwner = false;
  vi.advanceTimersByTime(3_000);
  await expect(store.remove('c', signal)).rejects.toThrow('owns it');
  expect(done).toEqual(['write a', 'remove b']);
});
