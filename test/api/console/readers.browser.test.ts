/** What the console offers to a token that only reads: no button that it cannot use. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { accessibilityFaults } from './accessibility.ts';
import { type ConsolePage, openPage } from './browser.ts';
import { type FixedConsole, openFixedConsole } from './fixed-console.ts';
import { layoutFaults } from './layout.ts';
import { busyFacts, idOf, ledgerOf, worldParts } from './world.ts';

const TOKEN = 'write-token-of-the-tests-1';
const READ_TOKEN = 'read-token-of-the-tests-2';
const DESK = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };
const ONLY_READS = /Your token can (?:only )?read/;
/** Every button that starts, cancels or orders. */
const CHANGES = /^(?:Run now|Cancel|Sync now|Ask|Export|Fetch|Start|Look|Yes)/;

/** What the lake answers to any query: a figure for each of two names. */
const ANSWER = {
  rows: [
    { transfer_type: 'TRANSFER_TYPE_DEPOSIT', entries: '12' },
    { transfer_type: 'TRANSFER_TYPE_WITHDRAW', entries: '7' },
  ],
  isCut: false,
  tookMs: 3,
};

let mirror: FixedConsole | undefined;
let reader: ConsolePage | undefined;
let writer: ConsolePage | undefined;

beforeAll(async () => {
  const facts = busyFacts();
  const world = worldParts(facts);
  mirror = await openFixedConsole(facts, 500, {
    ...world,
    lake: { ...world.lake, ask: async () => ANSWER },
    answers: { ...world.answers, ...ledgerOf(idOf('asset')) },
    token: TOKEN,
    readToken: READ_TOKEN,
  });
  reader = await logIn(READ_TOKEN);
  writer = await logIn(TOKEN);
});
afterAll(async () => {
  await reader?.[Symbol.asyncDispose]();
  await writer?.[Symbol.asyncDispose]();
  await mirror?.[Symbol.asyncDispose]();
});

async function logIn(token: string): Promise<ConsolePage> {
  const view = await openPage({ reducedMotion: 'reduce' });
  await view.page.goto(new URL('/login', mirror?.url).href);
  await view.page.getByLabel('Token').fill(token);
  await view.page.getByRole('button', { name: 'Log in' }).click();
  await view.page.locator('[data-connection=live]').waitFor();
  return view;
}

async function show(
  view: ConsolePage | undefined,
  path: string,
  size = DESK,
): Promise<ConsolePage['page']> {
  if (view === undefined) throw new Error('not open');
  const { page } = view;
  await page.setViewportSize(size);
  await page.goto(new URL(path, mirror?.url).href);
  await page.locator('[data-role]').waitFor({ state: 'attached' });
  await page.locator('[data-connection=live]').waitFor();
  await expect
    .poll(() => page.locator('.view:not([hidden]) .loading').count())
    .toBe(0);
  return page;
}

async function changing(page: ConsolePage['page']): Promise<readonly string[]> {
  const names = await page.locator('button:not(.term):visible').allInnerTexts();
  return names.filter((name) => CHANGES.test(name.trim()));
}

const VIEWS = ['/', '/data', '/runs', '/first-night'];

describe('a token that only reads', () => {
  test.each(VIEWS)(
    'sees at %s why it can change nothing, and no button that would',
    async (path) => {
      const page = await show(reader, path);
      expect(await changing(page)).toEqual([]);
      if (path !== '/first-night')
        await page
          .getByText(ONLY_READS)
          .locator('visible=true')
          .first()
          .waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await show(reader, path, PHONE);
      expect(await layoutFaults(page)).toEqual([]);
    },
  );

  test('runs a query and sees its chart, with what saves the rows and the chart', async () => {
    const page = await show(reader, '/data');
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await page.locator('#query-result tbody tr').nth(1).waitFor();
    await page.locator('#query-result .figure svg').waitFor();
    for (const name of ['CSV', 'Parquet', 'SVG', 'PNG'])
      expect([
        name,
        await page.getByRole('button', { name, exact: true }).isVisible(),
      ]).toEqual([name, true]);
  });

  test("sees in a party's ledger and in a run only what it can use", async () => {
    const page = await show(reader, `/data#party/${idOf('party 0')}`);
    await page.getByRole('dialog').getByText('Mirrored up to').waitFor();
    expect(await changing(page)).toEqual([]);
    await show(reader, '/runs');
    await page.locator('#runs summary').first().click();
    expect(await changing(page)).toEqual([]);
  });

  test.each(VIEWS.filter((path) => path !== '/first-night'))(
    'differs at %s from the token that may change things, which sees the buttons and no such sentence',
    async (path) => {
      const page = await show(writer, path);
      expect((await changing(page)).length).toBeGreaterThan(0);
      expect(
        await page.getByText(ONLY_READS).locator('visible=true').count(),
      ).toBe(0);
    },
  );
});
