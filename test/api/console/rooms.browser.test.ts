/**
 * What is shown has its room: nothing moves when it comes, and on a phone no column is
 * cut and no value broken.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { accessibilityFaults } from './accessibility.ts';
import { type ConsolePage, openPage } from './browser.ts';
import { type FixedConsole, openFixedConsole } from './fixed-console.ts';
import { layoutFaults } from './layout.ts';
import { calmFacts, idOf, ledgerOf, worldParts } from './world.ts';

const DESK = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };
/** Fonts differ by a part of a line from machine to machine. */
const JUMP_PX_MAX = 16;
const PARTY = idOf('party 0');
const BIG = '170141183460469231731687303715884105727';
const LEDGER = ledgerOf(idOf('asset'));
const ENTRY = {
  at: '2026-03-01T01:59:00Z',
  transferType: 'TRANSFER_FUNDS_DISTRIBUTE',
  assetId: idOf('asset'),
  quantity: BIG,
  fromParty: idOf('party 1'),
  fromAccount: 'LIQUIDITY_FEES_BONUS_DISTRIBUTION',
  fromBalance: '0',
  toParty: PARTY,
  toAccount: 'GENERAL',
  toBalance: BIG,
};
/** The cost of a nightly run: its exports, and a request for the source's time. */
const COST = {
  kind: 'nightly',
  subject: 'scheduled',
  isOwn: true,
  startedMs: 0,
  endedMs: 12_345_000,
  requests: '12345678',
  listRequests: '1',
  retries: '1234',
  bytes: '123456789012',
};
const ROW = {
  party_id: PARTY,
  account_from_account_type: 'LIQUIDITY_FEES_BONUS_DISTRIBUTION',
  sent: BIG,
  received: BIG,
  moved_within: BIG,
  latest: '2026-03-01 01:59:00+00',
};

const facts = calmFacts();
const world = worldParts(facts);
let view: ConsolePage | undefined;
let mirror: FixedConsole | undefined;
let tables = Promise.withResolvers<void>();

beforeAll(async () => {
  view = await openPage({ reducedMotion: 'reduce', timezoneId: 'UTC' });
  mirror = await openFixedConsole(facts, 500, {
    ...world,
    lake: {
      ...world.lake,
      tables: async () => {
        await tables.promise;
        return world.lake.tables();
      },
      ask: async () => ({ rows: [ROW, ROW], isCut: false, tookMs: 1 }),
    },
    answers: {
      ...world.answers,
      ...LEDGER,
      'read what a run cost': () => [COST],
      "sum up a ledger's flows": () => [
        { day: '2026-03-01', received: BIG, sent: '0', entries: '1' },
      ],
      "read an account's balance": () => [{ at: ENTRY.at, balance: BIG }],
      "list a party's entries": () => [ENTRY, ENTRY],
    },
  });
});
afterEach(() => {
  tables.resolve();
});
afterAll(async () => {
  await view?.[Symbol.asyncDispose]();
  await mirror?.[Symbol.asyncDispose]();
});

async function open(
  size: typeof DESK,
  path = '/data',
  shown = '#parties tr:nth-child(25)',
): Promise<ConsolePage['page']> {
  if (view === undefined || mirror === undefined) throw new Error('not open');
  const { page } = view;
  await page.setViewportSize(size);
  await page.goto(new URL(path, mirror.url).href);
  await page.locator(shown).waitFor();
  return page;
}

/** How far the content of a box reaches beyond its side. */
async function hiddenPx(selector: string): Promise<number | undefined> {
  return view?.page.evaluate<number>(
    `(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(document.querySelector('${selector}'))`,
  );
}

/** Values that a line cannot hold, and what is wider than its box. */
function brokenIn(selector: string): string {
  return `[...document.querySelectorAll('${selector}')].flatMap((node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    const lines = new Set([...range.getClientRects()].map(({ bottom }) => Math.round(bottom / 8)));
    return lines.size > 1 || node.scrollWidth > node.clientWidth + 1 ? [node.textContent] : [];
  })`;
}

describe('the list of tables', () => {
  test.each([
    ['a desk', DESK],
    ['a phone', PHONE],
  ])('moves nothing below it when it comes, on %s', async (_, size) => {
    tables = Promise.withResolvers();
    const page = await open(size);
    const top = async (): Promise<number> =>
      page.evaluate<number>(
        `document.getElementById('parties-title').getBoundingClientRect().top`,
      );
    const before = await top();
    tables.resolve();
    await page.locator('.lake-table').nth(7).waitFor();
    expect(Math.abs((await top()) - before)).toBeLessThan(JUMP_PX_MAX);
  });

  test('shows on a phone the columns of a table with nothing cut', async () => {
    const page = await open(PHONE);
    await page.locator('.lake-table summary').first().click();
    expect(await hiddenPx('.lake-table[open] .scroll')).toBeLessThanOrEqual(1);
    expect(await accessibilityFaults(page)).toEqual([]);
  });
});

describe('a result on a phone', () => {
  test.each([['your own SQL'], ['top-parties']])(
    'of %s shows every column of a row, none of them cut',
    async (label) => {
      const page = await open(PHONE);
      await page.getByLabel('Question').selectOption({ label });
      await page.getByRole('button', { name: 'Run', exact: true }).click();
      const region = page.getByRole('region', { name: 'Result' });
      await region.waitFor();
      expect(await hiddenPx('.result')).toBeLessThanOrEqual(1);
      expect(
        await region.locator('tbody tr').first().locator('td:visible').count(),
      ).toBe(6);
      expect(await accessibilityFaults(page)).toEqual([]);
    },
  );
});

test('marks the exports of a phone with the first and the last day of their line of time', async () => {
  const page = await open(PHONE, '/runs', '#lines details');
  await page.locator('#lines summary').click();
  const marks = page.locator('.axis li');
  await marks.first().waitFor();
  const all = await marks.allTextContents();
  expect(await page.locator('.axis li:visible').allTextContents()).toEqual([
    all[0],
    all.at(-1),
  ]);
});

test('shows on a phone what a run cost, beside nothing', async () => {
  const page = await open(PHONE, '/runs', '#runs li:nth-child(2)');
  await page.locator('#runs summary').first().click();
  await page.getByText('Cost by stage').first().click();
  await page.getByRole('table', { name: 'Cost by stage' }).waitFor();
  expect(await layoutFaults(page)).toEqual([]);
});

describe("a party's ledger", () => {
  test.each([
    ['a desk', DESK],
    ['a phone', PHONE],
  ])('breaks no time, no id and no figure, on %s', async (_, size) => {
    const page = await open(size);
    await page.locator('#parties .id').first().click();
    const entries = page
      .getByRole('table', { name: 'Entries' })
      .locator('tbody tr');
    await expect.poll(() => entries.count()).toBe(2);
    expect(
      await page.evaluate(
        brokenIn(
          'dialog dd, dialog time, dialog .id:not(.whole), dialog button',
        ),
      ),
    ).toEqual([]);
    expect(await hiddenPx('#dialog')).toBeLessThanOrEqual(1);
    await page.keyboard.press('Escape');
  });
});
