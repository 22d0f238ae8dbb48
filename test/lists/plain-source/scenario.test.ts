import { describe, expect, test } from 'vitest';
import { drawScenario, type Step } from './scenario.ts';

const SEEDS = Array.from({ length: 400 }, (_, seed) => seed + 1);
const scenarios = SEEDS.map(drawScenario);

const faultsOf = (steps: readonly Step[]): string[] =>
  steps.flatMap((step) => (step.kind === 'misbehave' ? [step.fault.name] : []));

describe('a drawn scenario', () => {
  test('is the same for the same seed, and another for another', () => {
    const shapes = SEEDS.slice(0, 50).map((seed) =>
      JSON.stringify(drawScenario(seed)),
    );
    expect(shapes).toEqual(
      SEEDS.slice(0, 50).map((seed) => JSON.stringify(drawScenario(seed))),
    );
    expect(new Set(shapes).size).toBe(shapes.length);
  });

  test('has at most one fault at a time, and ends healed, audited and complete', () => {
    for (const { steps } of scenarios) {
      let active = 0;
      for (const step of steps) {
        if (step.kind === 'misbehave') active += 1;
        if (step.kind === 'heal') active -= 1;
        expect(active === 0 || active === 1).toBe(true);
      }
      expect(active).toBe(0);
      expect(steps.slice(-3)).toEqual([
        {
          kind: 'sync',
          isAudit: true,
          proves: 'rows-and-order',
          mustBeComplete: true,
        },
        { kind: 'append', parties: 3, checkpoints: 3 },
        {
          kind: 'sync',
          isAudit: false,
          proves: 'rows-and-order',
          mustBeComplete: true,
        },
      ]);
    }
  });

  test('demands nothing of syncs that cannot know, until an audit after healing', () => {
    for (const { steps } of scenarios) {
      let isBlind = false;
      let isActive = false;
      for (const step of steps) {
        if (step.kind === 'misbehave') {
          isBlind = isBlind || step.fault.shownBy === 'audit';
          isActive = true;
        }
        if (step.kind === 'heal') isActive = false;
        if (step.kind !== 'sync') continue;
        if (step.isAudit && !isActive) isBlind = false;
        expect(step.proves === 'nothing').toBe(isBlind);
      }
    }
  });

  test('begins faults that only a mirror with rows can know after a healthy sync', () => {
    const held = scenarios.filter(({ steps }) =>
      steps.some(
        (step) => step.kind === 'misbehave' && step.fault.since === 'held',
      ),
    );
    const first = held.map(
      ({ steps }) =>
        steps.find((step) => step.kind === 'sync' || step.kind === 'misbehave')
          ?.kind,
    );
    expect(new Set(first)).toEqual(new Set(['sync']));
  });

  test('draws most faults and dialects within a few hundred seeds', () => {
    expect(
      new Set(scenarios.flatMap(({ steps }) => faultsOf(steps))).size,
    ).toBeGreaterThanOrEqual(40);
    expect(
      new Set(scenarios.map(({ dialect }) => dialect.name)).size,
    ).toBeGreaterThanOrEqual(20);
  });
});
