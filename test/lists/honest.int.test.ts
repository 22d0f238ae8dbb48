/**
 * Every honest dialect of the interface document is mirrored: exactly its rows, in order,
 * and soon known again.
 */
import { describe, expect, test } from 'vitest';
import { HONEST_DIALECTS } from './plain-source/honest-dialects.ts';
import { describeJudgement, isLie } from './plain-source/oracle.ts';
import { startPlainSource } from './plain-source/start.ts';
import { openPlainSource, syncPlain } from './plain-world.ts';
import { freshSyncWorld, rememberingStore } from './sync-world.ts';

const world = await freshSyncWorld();

describe.each(['parties', 'checkpoints'] as const)(
  'the list of %s of an honest source',
  (list) => {
    test.each(HONEST_DIALECTS)(
      'is held exactly, and known again: $name',
      async ({ name, make, pageSize, verdicts, idleRequests }) => {
        const honest = make();
        const plain = await startPlainSource(honest);
        await using source = openPlainSource(plain.url);
        const resumePoints = rememberingStore();
        const request = { list, pageSize, resumePoints };
        try {
          // The heights of two end with the first rows, and rows that grow by themselves
          // have ages of their own.
          const isSteady =
            honest.dialect.growth === undefined &&
            !name.startsWith('heights-to-the-last');
          for (const round of isSteady
            ? (['first', 'idle', 'grown'] as const)
            : (['first', 'idle'] as const)) {
            if (round === 'grown') plain.append(honest.maker.make(25, 25));
            const { verdict, evidence, judgement, requests } = await syncPlain(
              world,
              plain,
              source.lists,
              request,
            );
            const allowed = verdicts[list];
            expect(
              allowed.includes(verdict) ? [] : [verdict, evidence],
            ).toEqual([]);
            if (verdict !== 'complete') return;
            expect(`${describeJudgement(judgement)}, ${isLie(judgement)}`).toBe(
              'nothing is wrong, false',
            );
            const isMeasured = round === 'idle' && isSteady;
            expect(isMeasured ? requests : 0).toBeLessThanOrEqual(
              idleRequests[list],
            );
          }
        } finally {
          await plain.close();
        }
      },
    );
  },
);
