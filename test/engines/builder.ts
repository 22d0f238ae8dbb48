/**
 * Builds a lake as a process of its own, and kills itself with -9 before the n-th write:
 * `builder.ts FOLDER SEGMENTS NTH`.
 */
import { join } from 'node:path';
import { buildLake } from '../../src/lake/build/build.ts';
import { openFileStore } from '../../src/storage/file-store.ts';
import { WarehouseDouble } from '../lake/entries-double.ts';
import { segmentOf } from './segments.ts';

const [folder = '', segments = '1', nth = '0', build = '0'] =
  process.argv.slice(2);
const objects = openFileStore(folder);
let steps = 0;
const counted = new Proxy(objects, {
  get: (store, name) => {
    const own: unknown = Reflect.get(store, name);
    if (typeof own !== 'function') return own;
    return (...given: readonly unknown[]): unknown => {
      if (
        ['publishFile', 'publishBytes', 'putIfAbsent', 'remove'].includes(
          String(name),
        )
      )
        steps += 1;
      if (steps === Number(nth) && steps > 0)
        process.kill(process.pid, 'SIGKILL');
      return Reflect.apply(own, store, given);
    };
  },
});
const warehouse = new WarehouseDouble();
warehouse.segments = Array.from({ length: Number(segments) }, (_, index) =>
  segmentOf(index + 1),
);
await warehouse.beginBuild(Number(build));
const scratchDir = join(`${folder}-scratch`, String(process.pid));
await buildLake(
  {
    repository: warehouse,
    objects: counted,
    scratchDir,
    retentionMs: 7 * 86_400_000,
  },
  new AbortController().signal,
);
