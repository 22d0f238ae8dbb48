/**
 * Seeded nights of a mirror whose source is a fleet: one address, and nodes behind it that
 * lag, are pruned, or are of an older snapshot. `FLEET_SEQUENCES` says how many, `SEED`
 * with which one they begin; `SEED` alone plays that one again. A failure shows what
 * happened in each night.
 */
import { describe, expect, test } from 'vitest';
import { Random } from '../lists/plain-source/random.ts';
import { Fleet } from './fleet.ts';
import { MirrorProcess } from './mirror-process.ts';
import { makeChain, Sequence } from './sequence.ts';

const FIRST = process.env['SEED'];
const SEQUENCES = Number(
  process.env['FLEET_SEQUENCES'] ?? (FIRST === undefined ? 1_000 : 1),
);
const SEEDS = Array.from(
  { length: SEQUENCES },
  (_, at) => Number(FIRST ?? 1) + at,
);
const START_HEIGHT = 5_000n;

describe('nights against a fleet of nodes', () => {
  // Side by side, because most of a night is waiting.
  test.concurrent.each(SEEDS)(
    'are complete over nothing less than was served, and end complete (seed %i)',
    async (seed) => {
      const random = new Random(seed + 1_000_000);
      const chain = makeChain(random, 1, START_HEIGHT);
      await using fleet = new Fleet(random, chain);
      const url = await fleet.listen();
      await using mirror = await MirrorProcess.open(url);
      const { wrong, story } = await new Sequence(seed, fleet, mirror).play();
      expect(wrong.length === 0 ? [] : [...wrong, ...story]).toEqual([]);
    },
  );
});
