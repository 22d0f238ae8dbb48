/** Nightly runs over three listed parties; the stages are doubles. */
import { beforeEach } from 'vitest';
import { enqueueRun } from '../../../src/runs/enqueue.ts';
import type { Run } from '../../../src/runs/store/run-store.ts';
import { freshDatabase, type FreshDatabase } from '../../support/database.ts';
import {
  addParties,
  emptyLists,
  emptyRuns,
} from '../../support/mirror-arrange.ts';
import { waitFor } from '../../support/wait-for.ts';
import { openJobWorld, type JobWorld } from '../stages-double.ts';
import { numberedNames } from '../../support/numbered-names.ts';

export const PARTIES = [1, 2, 3].map((digit) => String(digit).repeat(64));
export const [FIRST = '', SECOND = '', THIRD = ''] = PARTIES;

type Given =
  Parameters<typeof openJobWorld> extends [string, string, ...infer Rest]
    ? Rest
    : never;

/**
 * Call it at the top level of a test file: before each test the parties are listed anew.
 */
export async function nightlyWorlds(): Promise<{
  readonly database: FreshDatabase;
  readonly openWorld: (...given: Given) => Promise<JobWorld>;
}> {
  const database = await freshDatabase({ isMigrated: true });
  beforeEach(async () => {
    await emptyRuns(database.pool);
    await emptyLists(database.pool);
    await addParties(database.pool, [...PARTIES, 'network']);
  });
  const nextName = numberedNames('test');
  return {
    database,
    openWorld: (...given) => openJobWorld(database.url, nextName(), ...given),
  };
}

export async function runNight(world: JobWorld): Promise<Run> {
  const run = await world.deps.runs.create({ kind: 'nightly', subject: 'now' });
  world.work();
  await enqueueRun(run, world.deps);
  return ended(world, run.runId);
}

export function ended(world: JobWorld, runId: string): Promise<Run> {
  return waitFor(
    async () => {
      const run = await world.deps.runs.get(runId);
      return run?.state === 'done' || run?.state === 'cancelled'
        ? run
        : undefined;
    },
    { what: 'the nightly run to end' },
  );
}
