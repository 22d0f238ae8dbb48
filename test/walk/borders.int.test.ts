/** Borders: tied heights at every one of them, growth between any two requests, either direction alone. */
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { PermanentError } from '../../src/core/errors.ts';
import type { ListName } from '../../src/walk/ports.ts';
import { freshDatabase } from '../support/database.ts';
import { addParties, checkpoint, ListDouble, parties, type DoubleRow } from './list-double.ts';
import { openMigrated, WalkWorld } from './walk-world.ts';

const database = await freshDatabase();
const warehouse = await openMigrated(database.url);
const world = new WalkWorld(warehouse);
afterAll(() => warehouse[Symbol.asyncDispose]());
beforeEach(() => world.reset());

/** Heights of 1 to 4 rows in turn, identical ones among them, so that every border falls into a tie somewhere. */
function tied(heights: number): DoubleRow[] {
  return Array.from({ length: heights }, (_, index) => index + 1).flatMap((height) =>
    Array.from({ length: 1 + (height % 4) }, (_, tie) => checkpoint(height, Math.floor(tie / 2))),
  );
}

const SIZES = Array.from({ length: 47 }, (_, index) => index + 4);

describe.each(SIZES)('pages of %i', (pageSize) => {
  test.each(['both', 'up', 'down'] as const)('tied heights, read %s', async (directions) => {
    const double = new ListDouble(pageSize);
    double.lists.checkpoints = tied(44);
    double.answer = ({ question, page }) => {
      const isUp = !question.newestFirst;
      const isRefused =
        directions !== 'both' && question.after !== undefined && isUp !== (directions === 'up');
      if (isRefused) throw new PermanentError('Cannot ask: refused', { code: 'SOURCE_STATUS' });
      return page;
    };
    const { verdict, evidence } = await world.walk(double, { list: 'checkpoints', pageSize });
    expect(evidence).toMatchObject({
      missing: [],
      violations: [],
      rows: `${double.lists.checkpoints.length}`,
    });
    expect(verdict).toBe('complete');
    await world.expectCheckpoints(double);
  });
});

describe('growth between any two requests', () => {
  test.each(SIZES.filter((size) => size % 3 === 1))('pages of %i', async (pageSize) => {
    const double = new ListDouble(pageSize);
    double.lists.parties = parties(150);
    double.lists.checkpoints = tied(50);
    const atStart: Record<ListName, string[]> = { parties: [], checkpoints: [] };
    double.before = () => {
      addParties(double, 2);
      const next = Number(double.lists.checkpoints.at(-1)?.rank ?? 0n) + 1;
      double.lists.checkpoints.push(checkpoint(next), checkpoint(next), checkpoint(next, 1));
    };
    for (const list of ['parties', 'checkpoints'] as const) {
      for (let round = 0; round < 3; round += 1) {
        atStart[list] = double.lists[list].map(({ row }) => row.key);
        const { verdict, evidence } = await world.walk(double, { list, pageSize });
        expect(evidence).toMatchObject({ missing: [], violations: [] });
        expect(verdict).toBe('complete');
      }
    }
    // As of the head page of the last walk at least; what came later is whole as far as it goes.
    const held = await world.placedParties();
    const served = double.lists.parties.map(({ row }) => row.key);
    expect(held).toEqual(served.slice(0, held.length));
    expect(held.length).toBeGreaterThanOrEqual(atStart.parties.length - 1);
    const keys = await world.checkpointKeys();
    expect(keys.length).toBeGreaterThanOrEqual(atStart.checkpoints.length);
    const servedKeys = double.lists.checkpoints.map(({ row }) => row.key);
    expect(new Set(keys)).toEqual(new Set(servedKeys.slice(0, keys.length)));
  });
});

test('a tie group larger than the page is read whole, in larger pages', async () => {
  const double = new ListDouble();
  double.lists.checkpoints = [
    ...tied(12),
    ...Array.from({ length: 40 }, (_, tie) => checkpoint(50, tie)),
    ...Array.from({ length: 12 }, (_, index) => checkpoint(60 + index)),
  ];
  const { verdict } = await world.walk(double, { list: 'checkpoints', pageSize: 4 });
  expect(verdict).toBe('complete');
  await world.expectCheckpoints(double);
});

test('a page size that can prove nothing is raised, and said', async () => {
  const double = new ListDouble();
  double.lists.parties = parties(9);
  const { verdict, evidence } = await world.walk(double, { list: 'parties', pageSize: 1 });
  expect({ verdict, pageSize: evidence.pageSize, asked: evidence.pageSizeAsked }).toEqual({
    verdict: 'complete',
    pageSize: 4,
    asked: 1,
  });
  await world.expectParties(double);
});
