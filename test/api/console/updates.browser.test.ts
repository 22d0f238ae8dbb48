/** What is shown while answers come late, fail, or come again. */
import { afterEach, describe, expect, test } from 'vitest';
import { StatusError } from '../../../src/api/kit/status-error.ts';
import { type ConsolePage, openPage } from './browser.ts';
import {
  type Facts,
  type FixedConsole,
  openFixedConsole,
} from './fixed-console.ts';
import type { Answers } from '../mirror.ts';
import { calmFacts, idOf, ledgerOf, listParties, worldParts } from './world.ts';

const PARTY = idOf('party 0');
const ASSETS = [idOf('slow asset'), idOf('quick asset')] as const;
let opened:
  | { readonly console: FixedConsole; readonly view: ConsolePage }
  | undefined;
afterEach(async () => {
  await opened?.view[Symbol.asyncDispose]();
  await opened?.console[Symbol.asyncDispose]();
});

async function open(
  path: string,
  answers: Answers = {},
): Promise<{
  page: ConsolePage['page'];
  facts: Facts;
  problems: ConsolePage['problems'];
}> {
  const facts = calmFacts();
  const parts = worldParts(facts);
  const console = await openFixedConsole(facts, 50, {
    ...parts,
    answers: { ...parts.answers, ...answers },
  });
  const view = await openPage();
  opened = { console, view };
  await view.page.goto(new URL(path, console.url).href);
  return { page: view.page, facts, problems: view.problems };
}

/** @returns how many listeners of the window there are more than now */
async function countListeners(
  page: ConsolePage['page'],
): Promise<() => Promise<number>> {
  await page.evaluate(() => {
    const inPage = globalThis as unknown as Record<
      string,
      (...given: unknown[]) => unknown
    >;
    const counting = { listeners: 0 };
    for (const [name, by] of [
      ['addEventListener', 1],
      ['removeEventListener', -1],
    ] as const) {
      const change = inPage[name];
      inPage[name] = (...given) => {
        counting.listeners += by;
        return change?.apply(globalThis, given);
      };
    }
    Object.assign(globalThis, { counting });
  });
  return () =>
    page.evaluate(
      () =>
        (globalThis as unknown as { counting: { listeners: number } }).counting
          .listeners,
    );
}

test('draws one chart in its place, however often it is brought up to date and whatever the theme', async () => {
  let asked = 0;
  const growth = [1, 2, 3].map((day) => ({
    at: `2026-02-0${day}T00:00:00Z`,
    rows: '10',
    bytes: '1000',
  }));
  const { page, facts } = await open('/runs', {
    'read how the mirror grew': () => {
      asked += 1;
      return growth;
    },
    'read the nightly runs': () => [],
  });
  await page.locator('#growth .uplot').waitFor();
  await page.locator('[data-connection=live]').waitFor();
  const listening = await countListeners(page);
  for (const revision of ['1', '2', '3', '4']) {
    const before = asked;
    facts.live = { ...facts.live, revision };
    await expect.poll(() => asked).toBeGreaterThan(before);
  }
  await page.getByLabel('Colours').selectOption('dark');
  await page.getByLabel('Times in').selectOption('local');
  expect(await page.locator('#growth .uplot').count()).toBe(1);
  // A chart that is replaced and not let go goes on listening.
  expect(await listening()).toBeLessThanOrEqual(0);
});

test('the chart of growth shows the sum of all entries so far', async () => {
  const { page } = await open('/runs', {
    'read how the mirror grew': () =>
      [1, 2, 3].map((day) => ({
        at: `2026-02-0${day}T00:00:00Z`,
        rows: '10',
        bytes: '1000',
      })),
    'read the nightly runs': () => [],
  });
  // While nothing is pointed at, the legend shows the latest values.
  const legend = page.locator('#growth .u-legend .u-series', {
    hasText: 'Entries',
  });
  await expect.poll(() => legend.locator('.u-value').innerText()).toBe('30');
});

test('shows the flows of the asset that is chosen, also where those of another come later', async () => {
  const slow =
    Promise.withResolvers<readonly Readonly<Record<string, string>>[]>();
  const dayOf = (
    received: string,
  ): readonly Readonly<Record<string, string>>[] => [
    { day: '2026-03-01', received, sent: '0', entries: '1' },
  ];
  const { page } = await open(`/data#party/${PARTY}`, {
    ...ledgerOf(...ASSETS),
    "sum up a ledger's flows": (values: readonly unknown[]) =>
      values.includes(ASSETS[0]) ? slow.promise : dayOf('222'),
  });
  const dialog = page.getByRole('dialog');
  const asset = dialog.locator('select').first();
  await asset.waitFor();
  await asset.selectOption(ASSETS[1]);
  const chart = dialog.getByRole('group', { name: 'Flows by day' });
  await chart.getByText('222 received').waitFor({ state: 'attached' });
  const late = page.waitForResponse((response) =>
    response.url().includes(`asset=${ASSETS[0]}`),
  );
  slow.resolve(dayOf('111'));
  await (await late).finished();
  await page.waitForTimeout(200);
  expect(await chart.textContent()).toContain('222 received');
});

describe('a page of parties that could not be had', () => {
  test('leaves those before it where they are, and comes when it is asked for again', async () => {
    let isAway = false;
    const { page } = await open('/data', {
      'list parties': (values: readonly unknown[]) => {
        if (isAway)
          throw new StatusError('unavailable', 'the database is away');
        return values.includes('25')
          ? listParties().slice(0, 5)
          : listParties();
      },
    });
    const rows = page.locator('#parties tr');
    await expect.poll(() => rows.count()).toBe(25);
    isAway = true;
    await page.getByRole('button', { name: 'More parties' }).click();
    await page
      .locator('#parties', { hasText: 'the database is away' })
      .waitFor();
    expect(await page.locator('#parties .id').count()).toBe(25);
    isAway = false;
    await page.getByRole('button', { name: 'Try again' }).click();
    await expect.poll(() => page.locator('#parties .id').count()).toBe(30);
    expect(await rows.count()).toBe(30);
  });
});

test.each(['#party/%', '#run/%ff', '#elsewhere'])(
  'shows the view as ever behind the link %s',
  async (hash) => {
    const { page, problems } = await open(`/data${hash}`);
    await page.locator('#parties tr:nth-child(25)').waitFor();
    expect(await page.locator('dialog[open]').count()).toBe(0);
    expect(problems).toEqual([]);
  },
);

describe('a tab that is hidden', () => {
  test('still tells in its title how the mirror is', async () => {
    const console = await openFixedConsole(
      calmFacts(),
      50,
      worldParts(calmFacts()),
    );
    const view = await openPage();
    opened = { console, view };
    // A headless browser hides no tab: this is what the page sees of one that is hidden.
    await view.page.addInitScript({
      content: `
        Object.defineProperty(document, 'hidden', { get: () => true });
        window.requestAnimationFrame = () => 0;`,
    });
    await view.page.goto(new URL('/', console.url).href);
    await expect.poll(() => view.page.title()).toMatch(/^[✓!] /);
  });
});
