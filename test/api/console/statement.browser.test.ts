/** The account statement of a month: on a screen, by its address, and on paper. */
import { afterEach, describe, expect, test } from 'vitest';
import type { ConsoleParts } from '../../../src/api/console/ports.ts';
import { type Answers } from '../mirror.ts';
import { accessibilityFaults } from './accessibility.ts';
import { type ConsolePage, openPage } from './browser.ts';
import { openFixedConsole } from './fixed-console.ts';
import { layoutFaults } from './layout.ts';
import { calmFacts, idOf, ledgerOf, worldParts } from './world.ts';

const PARTY = idOf('party 0');
const OTHER = idOf('party 1');
const ASSET = idOf('asset');
const BIG = '170141183460469231731687303715884105727';
const PHONE = { width: 390, height: 844 };
const ACCOUNT = {
  assetId: ASSET,
  accountType: 'GENERAL',
  marketId: null,
  entries: '2',
  received: BIG,
  sent: '0',
  before: ['0'],
  first: ['0'],
  closing: [BIG],
};
const LINE = {
  at: '2026-02-03T10:00:00.000001Z',
  assetId: ASSET,
  accountType: 'GENERAL',
  marketId: null,
  transferType: 'TRANSFER_FUNDS_DISTRIBUTE',
  counterpartyId: OTHER,
  change: BIG,
  balance: BIG,
};
const KNOWN = {
  missing: [],
  knownTo: '2026-03-01T02:00:00Z',
  isSentOnly: false,
  hasBegun: true,
  isOver: true,
  notLoaded: '0',
  faulty: '0',
  isQuarantined: false,
};

const disposables: AsyncDisposable[] = [];
afterEach(async () => {
  for (const one of disposables.splice(0).toReversed())
    await one[Symbol.asyncDispose]();
});

async function open(
  path: string,
  answers: Answers = {},
  assets: ConsoleParts['assets'] = [],
): Promise<ConsolePage['page']> {
  const facts = calmFacts();
  const world = worldParts(facts);
  const fixed = await openFixedConsole(facts, 500, {
    ...world,
    assets,
    answers: {
      ...world.answers,
      ...ledgerOf(ASSET),
      'read the accounts of a month': () => [ACCOUNT],
      'read the lines of a month': () => [LINE],
      'read how a month is known': () => [KNOWN],
      ...answers,
    },
  });
  disposables.push(fixed);
  const view = await openPage({ reducedMotion: 'reduce', timezoneId: 'UTC' });
  disposables.push(view);
  await view.page.goto(new URL(path, fixed.url).href);
  return view.page;
}

/** Returns the lines of printed amounts that end elsewhere than after a comma. */
function brokenAmounts(page: ConsolePage['page']): Promise<readonly string[]> {
  return page.evaluate<readonly string[]>(`(() => {
    const broken = [];
    for (const cell of document.querySelectorAll('#statement td.number')) {
      const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
      let before;
      while (walker.nextNode()) {
        const node = walker.currentNode;
        for (let at = 0; at < node.length; at += 1) {
          const range = document.createRange();
          range.setStart(node, at);
          range.setEnd(node, at + 1);
          const top = Math.round(range.getBoundingClientRect().top);
          const char = node.data[at];
          if (before !== undefined && top > before.top && before.char !== ',')
            broken.push(before.char + ' / ' + char);
          before = { top, char };
        }
      }
    }
    return broken;
  })()`);
}

const LINK = `/statement?party=${PARTY}&month=2026-02`;

describe('the account statement', () => {
  test('is found from a party, has an address of its own, and shows balances, entries and the verdict', async () => {
    const page = await open(`/data#party/${PARTY}`);
    await page.getByRole('link', { name: 'Monthly statement' }).click();
    await page.waitForURL(`**/statement?party=${PARTY}&month=2026-03`);
    await page.getByLabel('Month').fill('2026-02');
    await page.getByRole('button', { name: 'Show' }).click();
    await page.waitForURL(`**${LINK}`);
    await page
      .getByRole('heading', { name: 'Statement for 2026-02' })
      .waitFor();

    const accounts = page.getByRole('table', { name: 'Accounts' });
    expect(await accounts.locator('tbody tr').innerText()).toMatch(
      /general\s+0\s+170,141,183,460,469,231,731,687,303,715,884,105,727\s+0\s+170,141,183,460,469,231,731,687,303,715,884,105,727\s+agree/,
    );
    await page.getByText('The whole month is mirrored').waitFor();
    const entries = page.getByRole('table', { name: 'Entries' });
    expect(await entries.locator('tbody tr').innerText()).toContain(
      '+170,141,183',
    );
    expect(await page.locator('#statement').innerText()).not.toMatch(
      /\b(?:false|null|undefined)\b/,
    );
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.setViewportSize(PHONE);
    expect(await layoutFaults(page)).toEqual([]);
    expect(await accessibilityFaults(page)).toEqual([]);
  });

  test('shows amounts in whole units if their decimals are known, and else says that they are not', async () => {
    const headings = async (
      page: ConsolePage['page'],
    ): Promise<readonly string[]> => {
      await page.getByRole('table', { name: 'Entries' }).waitFor();
      return page.locator('#statement th[scope=col]').allInnerTexts();
    };
    const plain = await open(LINK);
    expect(await headings(plain)).toEqual([
      'Account',
      'Opening',
      'In',
      'Out',
      'Closing',
      'Sums',
      'Time (UTC)',
      'Account',
      'Type',
      'With',
      'Change',
      'Balance',
    ]);
    const captions = async (
      shown: ConsolePage['page'],
    ): Promise<readonly string[]> =>
      shown.locator('#statement caption:not(.hidden)').allInnerTexts();
    expect(await captions(plain)).toEqual([
      'Accounts (smallest unit)',
      'Entries (smallest unit)',
    ]);
    const page = await open(LINK, {}, [
      { id: ASSET, symbol: 'TST', decimals: 18 },
    ]);
    const shown = await headings(page);
    expect(await captions(page)).toEqual([]);
    expect(shown.join(' ')).toBe(
      'Account Opening In Out Closing Sums ' +
        'Time (UTC) Account Type With Change Balance',
    );
    const whole = '170,141,183,460,469,231,731.687303715884105727 TST';
    const accounts = page.getByRole('table', { name: 'Accounts' });
    expect(await accounts.locator('td.number').allInnerTexts()).toEqual([
      '0 TST',
      whole,
      '0 TST',
      whole,
    ]);
    const entries = page.getByRole('table', { name: 'Entries' });
    expect(await entries.locator('td.number').allInnerTexts()).toEqual([
      `+${whole}`,
      whole,
    ]);
    await page.getByRole('heading', { name: `Asset TST ${ASSET}` }).waitFor();
    expect(
      await page
        .locator('.view:not([hidden])')
        .getByText('smallest unit')
        .count(),
    ).toBe(0);
    await page.setViewportSize(PHONE);
    expect(await layoutFaults(page)).toEqual([]);
  });

  test('shows the ledger of a party in whole units: its entries, its choices and its charts', async () => {
    const page = await open(`/data#party/${PARTY}`, {}, [
      { id: ASSET, symbol: 'TST', decimals: 3 },
    ]);
    const entries = page.locator('table.entries');
    await entries.locator('tbody tr').first().waitFor();
    expect(await entries.locator('thead th').allInnerTexts()).toContain(
      'Amount',
    );
    for (const text of await entries.locator('td.number').allInnerTexts())
      expect(text).toMatch(/^[\d,]+(?:\.\d{1,3})? TST$/);
    const dialog = page.getByRole('dialog');
    expect(
      await dialog
        .getByLabel('Asset')
        .first()
        .locator('option')
        .allInnerTexts(),
    ).toEqual(['TST']);
    await dialog
      .getByText(/^Received:?$/)
      .first()
      .waitFor();
    expect(await dialog.getByText('smallest unit').count()).toBe(0);
  });

  test('a party with an asset of unknown decimals has the hint, whatever others are known', async () => {
    const page = await open(`/data#party/${PARTY}`, {}, [
      { id: ASSET.replaceAll(/./g, '9'), symbol: 'OTHER', decimals: 3 },
    ]);
    const hint = page
      .getByRole('dialog')
      .getByText(
        'Amounts are as the network writes them, in the asset’s smallest',
      );
    await hint.waitFor();
    expect(await hint.count()).toBe(1);
  });

  test('says which part of the month is not proven, and which balance is not certain', async () => {
    const page = await open(LINK, {
      'read the accounts of a month': () => [
        { ...ACCOUNT, before: null, first: null, closing: ['5', '7'] },
      ],
      'read how a month is known': () => [
        {
          ...KNOWN,
          missing: [
            {
              assetId: null,
              from: '2026-02-10T00:00:00+00:00',
              to: '2026-03-01T00:00:00+00:00',
              isNow: false,
            },
          ],
        },
      ],
    });
    await page
      .getByText('Nothing is known from 2026-02-10 00:00:00 UTC to 2026-03-01')
      .waitFor();
    const row = page
      .getByRole('table', { name: 'Accounts' })
      .locator('tbody tr');
    expect(await row.innerText()).toMatch(/not known[^]*5 or 7\s+not certain/);
    expect(await page.locator('.judged .badge').innerText()).toBe('incomplete');
  });

  test('of a source that exports one side says so first, and is not suspicious', async () => {
    const page = await open(LINK, {
      'read the accounts of a month': () => [
        { ...ACCOUNT, received: '0', sent: '7' },
      ],
      'read how a month is known': () => [{ ...KNOWN, isSentOnly: true }],
    });
    const judged = page.locator('.judged');
    await judged.waitFor();
    expect(await judged.innerText()).toMatch(
      /^The source exports only what this party sends\. Received amounts are missing[^]*complete\s+All that the source exports of this month is mirrored/,
    );
    const row = page.locator('table.accounts tbody tr');
    expect(await row.innerText()).toMatch(/at least 0[^]*one side only/);
    expect(await accessibilityFaults(page)).toEqual([]);
  });

  test('of a month that is not over leads with the instant up to which it is proven', async () => {
    const page = await open(LINK, {
      'read how a month is known': () => [
        {
          ...KNOWN,
          isOver: false,
          knownTo: '2026-02-20T02:00:00Z',
          missing: [
            {
              assetId: null,
              from: '2026-02-20T02:00:00+00:00',
              to: '2026-02-20T09:00:00+00:00',
              isNow: true,
              isFromStart: false,
            },
          ],
        },
      ],
    });
    const judged = page.locator('.judged');
    await judged.waitFor();
    expect(await judged.innerText()).toMatch(
      /^complete\s+so far\s+The month is not over: proven up to 2026-02-20 02:00:00 UTC, and every sum agrees\.$/,
    );
    // The first snapshot has arrived, which marks the titles of other views.
    await page
      .locator('#status-summary[data-state]')
      .waitFor({ state: 'attached' });
    expect(await page.title()).toBe('Statement · ledger-mirror');
  });

  test('with more entries than it shows says so in its verdict, and has a link to all of them', async () => {
    const page = await open(LINK, {
      'read the lines of a month': () =>
        Array.from({ length: 5_001 }, () => LINE),
    });
    const judged = page.locator('.judged');
    await judged
      .getByText('This page has only the first 5,000 entries of the month')
      .waitFor();
    const link = judged.getByRole('link', { name: 'Download all as CSV' });
    const { searchParams } = new URL(
      (await link.getAttribute('href')) ?? '',
      page.url(),
    );
    expect(Object.fromEntries(searchParams)).toEqual({
      partyId: PARTY,
      'dateRange.startTimestamp': '1769904000000000000',
      'dateRange.endTimestamp': '1772323200000000000',
    });
    await page.emulateMedia({ media: 'print' });
    expect(await link.isVisible()).toBe(false);
    expect(await judged.locator('code').isVisible()).toBe(true);
  });

  test('of a month with thousands of entries is drawn in part, and printed whole', async () => {
    const lines = Array.from({ length: 2_500 }, () => LINE);
    const page = await open(LINK, { 'read the lines of a month': () => lines });
    const rows = page.locator('table.entries tbody tr');
    const all = page.getByRole('button', { name: 'Show all 2,500 entries' });
    await all.waitFor();
    expect(await rows.count()).toBe(1_000);
    expect(await page.getByText('This page has only').count()).toBe(0);
    expect(await accessibilityFaults(page)).toEqual([]);
    // Chromium sends this event before it prints, from whichever menu.
    await page.evaluate(`dispatchEvent(new Event('beforeprint'))`);
    expect(await rows.count()).toBe(2_500);
    expect(await all.count()).toBe(0);
    await page.evaluate(`dispatchEvent(new Event('beforeprint'))`);
    expect(await rows.count()).toBe(2_500);

    await page.reload();
    await all.click();
    expect(await rows.count()).toBe(2_500);
  });

  test('takes the beginning of an id, and says so if that is of several parties', async () => {
    const page = await open('/statement');
    await page.getByRole('textbox', { name: 'Party' }).fill(PARTY.slice(0, 8));
    await page.getByLabel('Month').fill('2026-02');
    await page.getByRole('button', { name: 'Show' }).click();
    await page.getByText('more than one party’s id begins like this').waitFor();
    expect(await accessibilityFaults(page)).toEqual([]);
  });

  test('is printed without the controls of the page, black on white, in both themes', async () => {
    const page = await open(LINK);
    await page.getByRole('table', { name: 'Entries' }).waitFor();
    await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
    expect(await page.getByRole('button', { name: 'Print' }).isVisible()).toBe(
      false,
    );
    expect(await page.locator('.top').isVisible()).toBe(false);
    expect(await page.locator('#statement-form').isVisible()).toBe(false);
    expect(await page.getByText(PARTY).first().isVisible()).toBe(true);
    const colours = await page.evaluate<readonly string[]>(
      `[getComputedStyle(document.body).color, getComputedStyle(document.querySelector('.panel')).backgroundColor]`,
    );
    await page.setViewportSize({ width: 718, height: 1000 });
    expect(
      await page.evaluate('document.documentElement.scrollWidth'),
    ).toBeLessThanOrEqual(718);
    expect(await brokenAmounts(page)).toEqual([]);
    expect(colours).toEqual(['rgb(0, 0, 0)', 'rgb(255, 255, 255)']);
    const pdf = await page.pdf({ format: 'A4' });
    expect(pdf.subarray(0, 5).toString('latin1')).toBe('%PDF-');
  });
});
