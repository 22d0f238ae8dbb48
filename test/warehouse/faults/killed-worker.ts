/**
 * Loads, or builds the lake, and kills itself with -9 at the n-th step: run as a child by
 * the test beside it.
 */
import { join } from 'node:path';
import { buildLake } from '../../../src/lake/build/build.ts';
import { loadAll } from '../../../src/warehouse/load-all.ts';
import { openFileStore } from '../../../src/storage/file-store.ts';
import { openWarehouse } from '../../../src/postgres/database.ts';
import { LakeStore } from '../../../src/lake/store/lake-store.ts';
import { LoadStore } from '../../../src/warehouse/store/load-store.ts';

const [stage = '', url = '', folder = '', nth = '1'] = process.argv.slice(2);
const signal = new AbortController().signal;
const warehouse = openWarehouse({ url, onIdleError: () => undefined });
const objects = openFileStore(folder);
let steps = 0;

function step(): void {
  steps += 1;
  if (steps === Number(nth)) process.kill(process.pid, 'SIGKILL');
}

/** Each write to the store is a step, and kills before it is done. */
const countedObjects = new Proxy(objects, {
  get: (store, name) => {
    const own: unknown = Reflect.get(store, name);
    if (typeof own !== 'function') return own;
    return (...given: readonly unknown[]): unknown => {
      if (
        ['publishFile', 'publishBytes', 'putIfAbsent', 'remove'].includes(
          String(name),
        )
      )
        step();
      return Reflect.apply(own, store, given);
    };
  },
});

/** Each month of each piece of rows that the warehouse was sent is a step. */
class CountedStore extends LoadStore {
  override replace(
    ...given: Parameters<LoadStore['replace']>
  ): ReturnType<LoadStore['replace']> {
    const [partyId, replacement, write, ...rest] = given;
    const counted: typeof write = (segment, sink) =>
      write(segment, {
        ...sink,
        write: async (months) => {
          await sink.write(months);
          for (let sent = 0; sent < months.length; sent += 1) step();
        },
      });
    return super.replace(partyId, replacement, counted, ...rest);
  }
}

if (stage === 'load') {
  await loadAll({ repository: new CountedStore(warehouse), objects }, signal);
} else {
  const scratchDir = join(folder, 'scratch');
  const repository = new LakeStore(warehouse.pool);
  await buildLake(
    {
      repository,
      objects: countedObjects,
      scratchDir,
      retentionMs: 7 * 86_400_000,
    },
    signal,
  );
}
await warehouse[Symbol.asyncDispose]();
