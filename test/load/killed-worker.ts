/** Loads, or builds the lake, and kills itself with -9 at the n-th step: run as a child by the test beside it. */
import { join } from 'node:path';
import { buildLake } from '../../src/lake/build.ts';
import { loadAll } from '../../src/load/load-all.ts';
import { FileStore } from '../../src/objects/file-store.ts';
import { openWarehouse } from '../../src/postgres/database.ts';
import { LakeStore } from '../../src/lake/store/lake-store.ts';
import { LoadStore } from '../../src/load/store/load-store.ts';

const [stage = '', url = '', folder = '', nth = '1'] = process.argv.slice(2);
const signal = new AbortController().signal;
const warehouse = openWarehouse({ url, onIdleError: () => undefined });
const objects = new FileStore(folder);
let steps = 0;

function step(): void {
  steps += 1;
  if (steps === Number(nth)) process.kill(process.pid, 'SIGKILL');
}

if (stage === 'load')
  await loadAll({ books: new LoadStore(warehouse), objects }, signal, { onProgress: step });
else {
  const deps = { books: new LakeStore(warehouse.pool), objects, scratchDir: join(folder, 'scratch') };
  await buildLake(deps, signal, step);
}
await warehouse[Symbol.asyncDispose]();
