/** Each figure of the evidence of real runs has a label in the console. */
import { expect, test } from 'vitest';
import { labelOf } from '../../../src/api/console/page/runs/evidence-labels.js';
import { emptyWorld } from '../../cli/commands/command-world.ts';

/** Figures for those who read the JSON: routes and details of errors. */
const IN_JSON_ONLY = new Set(['meta', 'route']);

const { sandbox, home } = await emptyWorld(4, 20);

/** Returns the keys without a label, each below the part that contains it. */
function withoutLabel(part: string, value: unknown): string[] {
  if (Array.isArray(value))
    return value.flatMap((item) => withoutLabel(part, item));
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => {
    if (IN_JSON_ONLY.has(key)) return [];
    const own = labelOf(part, key) === undefined ? [`${part}.${key}`] : [];
    return [...own, ...withoutLabel(key, inner)];
  });
}

test('every key of the evidence of a night, an export, a sync and a verification has a label', async () => {
  const [party] = [...sandbox.truth.parties()].map(({ id }) => id);
  for (const command of [
    ['nightly'],
    ['nightly'],
    ['export', '--party', party ?? '', '--again'],
    ['sync', 'all'],
    ['verify', '--deep'],
    ['load'],
  ])
    expect((await home.run(command)).code).toBe(0);
  const { document } = await home.json(['runs', '--limit', '50']);
  const runs = document as unknown as readonly {
    readonly kind: string;
    readonly evidence: object;
  }[];
  const kinds = new Set(runs.map(({ kind }) => kind));
  expect([...kinds].toSorted()).toEqual([
    'export',
    'load',
    'nightly',
    'sync',
    'verify',
  ]);
  const missing = runs.flatMap(({ kind, evidence }) =>
    withoutLabel(kind, evidence),
  );
  expect([...new Set(missing)]).toEqual([]);
});
