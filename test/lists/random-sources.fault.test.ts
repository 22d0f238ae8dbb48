/**
 * A random walk over dishonest sources: growth, faults, healing and syncs in any order.
 * What each sync may say is drawn with them. A seed that failed is run again with `SEED=…
 * npm run test:faults`.
 */
import { afterAll, describe, expect, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { describeJudgement, isLie } from './plain-source/oracle.ts';
import { LISTS } from './plain-source/rows.ts';
import { drawScenario } from './plain-source/scenario.ts';
import { startPlainSource } from './plain-source/start.ts';
import { openPlainSource, syncPlain } from './plain-world.ts';
import { openMigrated, rememberingStore, SyncWorld } from './sync-world.ts';

const SEQUENCES = Number(process.env['SEQUENCES'] ?? 1_000);
const PER_TEST = 50;
const WORLDS = 4;
const ONLY = process.env['SEED'];
const STARTS =
  ONLY === undefined
    ? Array.from(
        { length: Math.ceil(SEQUENCES / PER_TEST) },
        (_, at) => at * PER_TEST + 1,
      )
    : [];

/** Side by side: most of a sequence is waiting for commits. */
const worlds = await Promise.all(Array.from({ length: WORLDS }, openWorld));
afterAll(() =>
  Promise.all(worlds.map(({ warehouse }) => warehouse[Symbol.asyncDispose]())),
);

async function openWorld(): Promise<SyncWorld> {
  const database = await freshDatabase();
  // No server is killed here.
  await database.pool.query(
    `alter database ${new URL(database.url).pathname.slice(1)} set synchronous_commit = off`,
  );
  return new SyncWorld(await openMigrated(database.url));
}

/** @returns what was said wrongly, in words */
async function follow(seed: number, world: SyncWorld): Promise<string[]> {
  await world.reset();
  const { dialect, steps } = drawScenario(seed);
  const honest = dialect.make();
  const plain = await startPlainSource(honest);
  await using source = openPlainSource(plain.url);
  const resumePoints = rememberingStore();
  const wrong: string[] = [];
  let active = 'healthy';
  try {
    for (const [at, step] of steps.entries()) {
      if (step.kind === 'append')
        plain.append(honest.maker.make(step.parties, step.checkpoints));
      if (step.kind === 'heal') plain.heal();
      if (step.kind === 'misbehave') plain.misbehave(step.fault, step.when);
      if (step.kind === 'misbehave' || step.kind === 'heal')
        active =
          step.kind === 'heal'
            ? 'healed'
            : `${step.fault.name} ${JSON.stringify(step.when)}`;
      if (step.kind !== 'sync') continue;
      const runs = await Promise.all(
        LISTS.map((list) =>
          syncPlain(world, plain, source.lists, {
            list,
            pageSize: dialect.pageSize,
            isAudit: step.isAudit,
            resumePoints,
          }),
        ),
      );
      for (const [index, { verdict, judgement, evidence }] of runs.entries()) {
        const isTrue = !isLie(judgement, step.proves === 'rows-and-order');
        const said = `seed ${seed} ${dialect.name} step ${at} ${LISTS[index]} ${active}: ${verdict}, ${describeJudgement(judgement)} ${JSON.stringify(evidence['missing'])}`;
        if (verdict === 'complete' && step.proves !== 'nothing' && !isTrue)
          wrong.push(said);
        if (step.mustBeComplete && (verdict !== 'complete' || !isTrue))
          wrong.push(said);
      }
    }
    return wrong;
  } finally {
    await plain.close();
  }
}

describe('sequences of growth, faults, healing and syncs', () => {
  test.each(STARTS)(
    'say complete only where it is true, from seed %i on',
    async (first) => {
      const wrong = await Promise.all(
        worlds.map(async (world, at) => {
          const said: string[] = [];
          for (let seed = first + at; seed < first + PER_TEST; seed += WORLDS)
            said.push(...(await follow(seed, world)));
          return said;
        }),
      );
      expect(wrong.flat()).toEqual([]);
    },
  );

  test.runIf(ONLY !== undefined)(
    'say complete only where it is true, for the seed that is asked for',
    async () => {
      const [world] = worlds;
      expect(
        world === undefined
          ? ['no database']
          : await follow(Number(ONLY), world),
      ).toEqual([]);
    },
  );
});
