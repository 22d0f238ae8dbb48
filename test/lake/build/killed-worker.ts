/**
 * Builds the lake on an S3 server, and kills itself with -9 at a step: run as a child by
 * the test beside it. Steps are the writes to the store and what the database is told:
 * `publishFile lake/…` before it, `done publishFile lake/…` after it.
 */
import { buildLake } from '../../../src/lake/build/build.ts';
import { LakeStore } from '../../../src/lake/store/lake-store.ts';
import { openWarehouse } from '../../../src/postgres/database.ts';
import { openDoubleStore } from '../../support/stores/s3-double.ts';

const [url = '', endpoint = '', scratchDir = '', killedAt = ''] =
  process.argv.slice(2);
const STEPS = [
  'publishFile',
  'publishBytes',
  'putIfAbsent',
  'remove',
  'decideCommit',
  'forgetContent',
  'record',
];

function reach(step: string): void {
  if (new RegExp(`^${killedAt}`).test(step))
    process.kill(process.pid, 'SIGKILL');
}

function stepped<Target extends object>(target: Target): Target {
  return new Proxy(target, {
    get: (of, name) => {
      const own: unknown = Reflect.get(of, name);
      if (typeof own !== 'function') return own;
      return (...given: readonly unknown[]): unknown => {
        if (!STEPS.includes(String(name))) return Reflect.apply(own, of, given);
        const [first, second] = given;
        const isCommit =
          typeof second === 'object' && second !== null && 'table' in second;
        const step = `${String(name)} ${String(first)} ${String(isCommit ? second.table : second)}`;
        reach(step);
        const result = Reflect.apply(own, of, given) as Promise<unknown>;
        return result.finally(() => reach(`done ${step}`));
      };
    },
  });
}

const warehouse = openWarehouse({ url, onIdleError: () => undefined });
const objects = stepped(openDoubleStore(endpoint, `${scratchDir}/spool`));
const repository = stepped(new LakeStore(warehouse.pool));
await buildLake(
  { repository, objects, scratchDir, retentionMs: 7 * 86_400_000 },
  new AbortController().signal,
);
await warehouse[Symbol.asyncDispose]();
