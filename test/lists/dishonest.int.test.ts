/**
 * Dishonest sources, each on lists of several pages and of one: `complete` is never said
 * over a missing or a foreign row, in no run of any sequence, and is said again once the
 * source has healed and was audited.
 */
import { describe, expect, test } from 'vitest';
import { PLAIN } from './plain-source/dialect.ts';
import { isConsistent } from './plain-source/fault.ts';
import { FAULTS } from './plain-source/faults.ts';
import { describeJudgement, isLie } from './plain-source/oracle.ts';
import { RowMaker } from './plain-source/rows.ts';
import { startPlainSource } from './plain-source/start.ts';
import { openPlainSource, syncPlain, type PlainRun } from './plain-world.ts';
import { freshSyncWorld, rememberingStore } from './sync-world.ts';

const PAGE = 20;
const world = await freshSyncWorld();

const CASES = FAULTS.flatMap((fault) =>
  (['parties', 'checkpoints'] as const).flatMap((list) =>
    (fault.since === 'held' ? [true] : [true, false]).map((isHeld) => ({
      name: fault.name,
      fault,
      list,
      isHeld,
    })),
  ),
).filter(({ fault, list }) => (fault.when.list ?? list) === list);

function say({ verdict, judgement, evidence }: PlainRun): string {
  return `${verdict}: ${describeJudgement(judgement)} ${JSON.stringify(evidence['missing'] ?? evidence)}`;
}

describe('a dishonest source', () => {
  test.each(CASES)(
    'is not believed, and is mirrored again when it is healed: $name ($list, held before: $isHeld)',
    async ({ fault, list, isHeld }) => {
      const maker = new RowMaker();
      const plain = await startPlainSource({
        dialect: PLAIN,
        ...maker.make(83, 83),
      });
      await using source = openPlainSource(plain.url);
      const request = {
        list,
        pageSize: PAGE,
        resumePoints: rememberingStore(),
      };
      try {
        const before = isHeld
          ? await syncPlain(world, plain, source.lists, request)
          : undefined;
        expect(before?.verdict ?? 'complete').toBe('complete');
        const wrong: string[] = [];
        plain.append(maker.make(17, 17));
        plain.misbehave(fault);
        if (fault.name === 'prunes-everything-held')
          plain.append(maker.make(30, 30));
        for (const isAudit of [false, false, true, false]) {
          const run = await syncPlain(world, plain, source.lists, {
            ...request,
            isAudit,
          });
          if (run.verdict !== 'complete') continue;
          if (fault.neverComplete) wrong.push(say(run));
          // What a single reading cannot show is shown by an audit after healing; what
          // all requests see is the truth.
          const isJudged = fault.shownBy === 'sync' || isConsistent(fault);
          if (isJudged && isLie(run.judgement, fault.keepsOrder))
            wrong.push(say(run));
        }
        expect(wrong).toEqual([]);
        plain.heal();
        if (!fault.heals) return;
        const audit = await syncPlain(world, plain, source.lists, {
          ...request,
          isAudit: true,
        });
        expect(say(audit)).toBe('complete: nothing is wrong []');
        plain.append(maker.make(3, 3));
        const next = await syncPlain(world, plain, source.lists, request);
        expect(say(next)).toBe('complete: nothing is wrong []');
        expect(await world.openDoubts(list)).toEqual([]);
      } finally {
        await plain.close();
      }
    },
  );

  test.each(['parties', 'checkpoints'] as const)(
    'that has lost %s for good is mirrored again once a person has accepted it',
    async (list) => {
      const maker = new RowMaker();
      const plain = await startPlainSource({
        dialect: PLAIN,
        ...maker.make(83, 83),
      });
      await using source = openPlainSource(plain.url);
      const request = { list, pageSize: PAGE };
      try {
        await syncPlain(world, plain, source.lists, request);
        const fault = FAULTS.find(
          ({ name }) => name === 'loses-most-rows-for-good',
        );
        if (fault === undefined)
          throw new Error('the fault is not in the table');
        plain.misbehave(fault);
        expect(
          (
            await syncPlain(world, plain, source.lists, {
              ...request,
              isAudit: true,
            })
          ).verdict,
        ).toBe('suspicious');
        expect(
          (await syncPlain(world, plain, source.lists, request)).verdict,
        ).toBe('suspicious');
        const accepted = await syncPlain(world, plain, source.lists, {
          ...request,
          acceptShrunk: true,
        });
        expect(say(accepted)).toBe('complete: nothing is wrong []');
        expect(
          (await syncPlain(world, plain, source.lists, request)).verdict,
        ).toBe('complete');
      } finally {
        await plain.close();
      }
    },
  );
});
