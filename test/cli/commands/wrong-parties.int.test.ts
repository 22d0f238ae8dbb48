/** A mistyped id in NIGHTLY_PARTIES is named before the night, and not only by its verdict. */
import { expect, test } from 'vitest';
import { emptyWorld } from './command-world.ts';

const { sandbox, home } = await emptyWorld(3, 20);

const listed = [...sandbox.truth.parties()][0]?.id ?? '';
const mistyped = listed.slice(0, -1) + (listed.endsWith('0') ? '1' : '0');

test('config names an id of an unusual form without asking the source', async () => {
  const before = sandbox.requests.of();
  const { code, stderr } = await home.run(['config'], {
    NIGHTLY_PARTIES: `abc,${listed}`,
  });
  expect(code).toBe(0);
  expect(stderr).toContain(
    'NIGHTLY_PARTIES: \\"abc\\" is not 64 hexadecimal digits, as the ids of most networks are',
  );
  expect(sandbox.requests.of()).toBe(before);
});

interface Findings {
  readonly findings: readonly Readonly<
    Record<'what' | 'state' | 'detail', string>
  >[];
}

async function partiesFound(
  parties: string,
): Promise<Findings['findings'][number] | undefined> {
  const { document } = await home.json(['doctor'], {
    NIGHTLY_PARTIES: parties,
  });
  const { findings } = document as unknown as Findings;
  return findings.find(({ what }) => what === 'parties');
}

test('doctor names the ids that the source does not list, before any night', async () => {
  expect(await partiesFound(`${listed},abc,${mistyped}`)).toMatchObject({
    state: 'warning',
    detail:
      `NIGHTLY_PARTIES: the source does not list "abc", "${mistyped}"; correct ` +
      'NIGHTLY_PARTIES, or the nightly run ends incomplete',
  });
  expect(await partiesFound(listed)).toMatchObject({
    state: 'ok',
    detail: 'nightly runs export 1 party',
  });
  expect(await partiesFound('all')).toMatchObject({
    state: 'ok',
    detail: 'nightly runs export every listed party',
  });
});

test('a nightly run warns of such an id before it begins', async () => {
  const { code, stderr } = await home.run(['nightly'], {
    NIGHTLY_PARTIES: `${listed},abc`,
  });
  expect(code).toBe(2);
  const warning = stderr.indexOf('the source does not list');
  expect(warning).toBeGreaterThanOrEqual(0);
  expect(warning).toBeLessThan(stderr.indexOf('Nightly run started'));
});

test('doctor suggests the listed id that was probably meant', async () => {
  const found = await partiesFound(mistyped);
  expect(found?.detail).toContain(
    `"${mistyped}" (did you mean ${listed}?); correct`,
  );
});
