/** What every object store must do, whatever it is made of. */
import { createHash, randomUUID } from 'node:crypto';
import { access, writeFile } from 'node:fs/promises';
import { buffer } from 'node:stream/consumers';
import { describe, expect, test } from 'vitest';
import { errorCode } from '../../src/errors/errors.ts';
import type {
  ObjectStore,
  StoreCapabilities,
} from '../../src/storage/object-store.ts';

const signal = new AbortController().signal;

function factsOf(content: Buffer): { bytes: bigint; sha256: string } {
  return {
    bytes: BigInt(content.length),
    sha256: createHash('sha256').update(content).digest('hex'),
  };
}

async function spooled(store: ObjectStore, content: Buffer): Promise<string> {
  const path = await store.spoolPath(`contract.${randomUUID()}`);
  await writeFile(path, content);
  return path;
}

async function keysOf(store: ObjectStore, prefix: string): Promise<string[]> {
  const keys: string[] = [];
  for await (const { key } of store.list(prefix, signal)) keys.push(key);
  return keys;
}

async function publishAll(
  store: ObjectStore,
  keys: readonly string[],
): Promise<void> {
  for (const key of keys)
    await store.publishBytes(key, Buffer.from(key), signal);
}

/**
 * @param expected what this store is known to make of conditions
 * @param open a store of its own for each call, empty
 * @param fill puts something under each key, the quickest way that there is
 */
export function describeObjectStore(
  name: string,
  expected: StoreCapabilities,
  open: () => Promise<ObjectStore>,
  fill: (
    store: ObjectStore,
    keys: readonly string[],
  ) => Promise<void> = publishAll,
): void {
  describe(`object store: ${name}`, () => {
    test('replaceBytes writes a new object, and replaces one that is there', async () => {
      await using store = await open();
      const key = 'contract/replaced';
      for (const content of ['first', 'the second, which is longer', '3']) {
        await store.replaceBytes(key, Buffer.from(content), signal);
        const bytes = await buffer(await store.read(key, signal));
        expect(bytes.toString()).toBe(content);
        expect((await store.head(key, signal))?.bytes).toBe(
          BigInt(content.length),
        );
      }
      expect(await keysOf(store, 'contract/')).toEqual([key]);
    });

    test('publishes a complete file and reads it back, in ranges too', async () => {
      await using store = await open();
      const content = Buffer.from('0123456789'.repeat(1000));
      const path = await spooled(store, content);
      expect(await store.head('contract/a/file', signal)).toBeUndefined();
      await store.publishFile(
        'contract/a/file',
        path,
        factsOf(content),
        signal,
      );
      expect((await store.head('contract/a/file', signal))?.bytes).toBe(
        10_000n,
      );
      expect(await buffer(await store.read('contract/a/file', signal))).toEqual(
        content,
      );
      const range = await store.read('contract/a/file', signal, {
        start: 5n,
        end: 15n,
      });
      expect((await buffer(range)).toString()).toBe('5678901234');
      await access(path);
    });

    test('takes the same bytes twice, and refuses others under the same key', async () => {
      await using store = await open();
      const content = Buffer.from('one');
      const other = Buffer.from('two');
      await store.publishBytes('contract/same', content, signal);
      await store.publishBytes('contract/same', content, signal);
      await store.publishFile(
        'contract/same',
        await spooled(store, content),
        factsOf(content),
        signal,
      );
      const conflict = expect.objectContaining({ code: 'OBJECT_CONFLICT' });
      await expect(
        store.publishBytes('contract/same', other, signal),
      ).rejects.toThrow(conflict);
      const path = await spooled(store, other);
      await expect(
        store.publishFile('contract/same', path, factsOf(other), signal),
      ).rejects.toThrow(conflict);
      expect(
        (await buffer(await store.read('contract/same', signal))).toString(),
      ).toBe('one');
    });

    test('takes an empty object twice', async () => {
      await using store = await open();
      for (let time = 0; time < 2; time += 1)
        await store.publishBytes('contract/empty', Buffer.alloc(0), signal);
      expect((await store.head('contract/empty', signal))?.bytes).toBe(0n);
    });

    test('tells of a conditional write whether its bytes are stored', async () => {
      await using store = await open();
      const content = Buffer.from('one');
      const other = Buffer.from('two');
      expect(await store.putIfAbsent('contract/log/1', content, signal)).toBe(
        'written',
      );
      expect(await store.putIfAbsent('contract/log/1', content, signal)).toBe(
        'written',
      );
      expect(await store.putIfAbsent('contract/log/1', other, signal)).toBe(
        'present',
      );
      expect(
        (await buffer(await store.read('contract/log/1', signal))).toString(),
      ).toBe('one');
    });

    test('tries itself out and leaves nothing behind', async () => {
      await using store = await open();
      const found = await store.probe(signal);
      expect(found).toEqual(expected);
      expect(await store.capabilities(signal)).toEqual(found);
      expect(await keysOf(store, '')).toEqual([]);
    });

    test('publishes one complete object where several writers race', async () => {
      await using store = await open();
      const content = Buffer.alloc(200_000, 'x');
      const paths = await Promise.all(
        [1, 2, 3, 4].map(() => spooled(store, content)),
      );
      await Promise.all(
        paths.map((path) =>
          store.publishFile('contract/raced', path, factsOf(content), signal),
        ),
      );
      expect(await buffer(await store.read('contract/raced', signal))).toEqual(
        content,
      );
    });

    test.each([
      ['above 16 MiB', 17],
      ['above 64 MiB', 65],
    ])(
      'publishes an object %s, takes it twice, and refuses other bytes of its size',
      async (_, mib) => {
        await using store = await open();
        const content = Buffer.alloc(mib * 2 ** 20, randomUUID());
        const path = await spooled(store, content);
        const facts = factsOf(content);
        await store.publishFile('contract/large', path, facts, signal);
        await store.publishFile('contract/large', path, facts, signal);
        const other = Buffer.alloc(content.length, randomUUID());
        const otherPath = await spooled(store, other);
        await expect(
          store.publishFile(
            'contract/large',
            otherPath,
            factsOf(other),
            signal,
          ),
        ).rejects.toThrow(expect.objectContaining({ code: 'OBJECT_CONFLICT' }));
        expect(
          factsOf(await buffer(await store.read('contract/large', signal))),
        ).toEqual(facts);
        const end = BigInt(content.length);
        const tail = await store.read('contract/large', signal, {
          start: end - 3n,
          end,
        });
        expect(await buffer(tail)).toEqual(content.subarray(-3));
      },
    );

    test.each([
      ['small objects', 200_000, expected.put],
      ['objects in parts', 17 * 2 ** 20, expected.multipart],
    ])(
      'leaves the bytes of one writer where several race with different %s',
      async (_, bytes, support) => {
        await using store = await open();
        const racers = await Promise.all(
          [1, 2, 3].map(async () => {
            const content = Buffer.alloc(bytes, randomUUID());
            return {
              path: await spooled(store, content),
              facts: factsOf(content),
            };
          }),
        );
        const told = await Promise.allSettled(
          racers.map(({ path, facts }) =>
            store.publishFile('contract/raced', path, facts, signal),
          ),
        );
        const winners = racers.filter(
          (_racer, index) => told[index]?.status === 'fulfilled',
        );
        const facts = factsOf(
          await buffer(await store.read('contract/raced', signal)),
        );
        expect(winners.map((racer) => racer.facts)).toContainEqual(facts);
        const mostWinners =
          support === 'honoured' && expected.hasOneWinner ? 1 : racers.length;
        expect(winners.length).toBeLessThanOrEqual(mostWinners);
        const refusals = told.flatMap((one) =>
          one.status === 'rejected' ? [errorCode(one.reason)] : [],
        );
        expect(refusals).toEqual(refusals.map(() => 'OBJECT_CONFLICT'));
      },
    );

    test('lists more than a thousand keys, each once and in order', async () => {
      await using store = await open();
      const keys = Array.from(
        { length: 1_050 },
        (_, index) => `contract/many/${String(index).padStart(5, '0')}`,
      );
      await fill(store, keys);
      expect(await keysOf(store, 'contract/many/')).toEqual(keys);
    });

    test('lists by prefix, in the order of keys', async () => {
      await using store = await open();
      const keys = ['b/1', 'a.b', 'a/2', 'a/10', 'a-b', 'ab/1/2'].map(
        (key) => `contract/${key}`,
      );
      for (const key of keys)
        await store.publishBytes(key, Buffer.from(key), signal);
      const sorted = keys.toSorted((a, b) => (a < b ? -1 : 1));
      expect(await keysOf(store, 'contract/')).toEqual(sorted);
      expect(await keysOf(store, 'contract/a')).toEqual(
        sorted.filter((key) => key.startsWith('contract/a')),
      );
      expect(await keysOf(store, 'contract/a/')).toEqual([
        'contract/a/10',
        'contract/a/2',
      ]);
      expect(await keysOf(store, 'nothing/')).toEqual([]);
    });

    test('removes, twice without complaint, and says what is missing', async () => {
      await using store = await open();
      await store.publishBytes('contract/gone', Buffer.from('x'), signal);
      await store.remove('contract/gone', signal);
      await store.remove('contract/gone', signal);
      await expect(store.read('contract/gone', signal)).rejects.toThrow(
        expect.objectContaining({ code: 'OBJECT_MISSING' }),
      );
    });

    test('shows nothing of its spool and clears it', async () => {
      await using store = await open();
      const one = await store.spoolPath('unit-1.one');
      const other = await store.spoolPath('unit-1.other');
      const kept = await store.spoolPath('unit-2.keep');
      const foreign = await store.spoolPath('unit-10.other');
      for (const path of [one, other, kept, foreign])
        await writeFile(path, 'half');
      expect(await keysOf(store, '')).toEqual([]);
      expect(await store.clearSpool('unit-1.')).toBe(2);
      for (const path of [one, other])
        await expect(access(path)).rejects.toThrow('ENOENT');
      await Promise.all([access(kept), access(foreign)]);
      expect(await store.removeAbandoned(60_000, signal)).toBe(0);
      expect(await store.removeAbandoned(-1000, signal)).toBe(2);
    });

    test('refuses keys that lead out of it', async () => {
      await using store = await open();
      const refused = expect.objectContaining({ code: 'OBJECT_KEY_INVALID' });
      await expect(
        store.publishBytes('../escaped', Buffer.from('x'), signal),
      ).rejects.toThrow(refused);
      await expect(store.read('/etc/passwd', signal)).rejects.toThrow(refused);
    });
  });
}
