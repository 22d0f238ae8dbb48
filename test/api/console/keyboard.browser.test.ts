/**
 * The keyboard alone reaches everything that can be pressed, and a phone shows every page
 * and state without a sideways scroll.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EMPTY_FACTS } from '../mirror.ts';
import { type ConsolePage, openPage } from './browser.ts';
import { type FixedConsole, openFixedConsole, quiet } from './fixed-console.ts';
import { busyFacts, calmFacts, idOf, ledgerOf, worldParts } from './world.ts';

type Page = ConsolePage['page'];

const DESK = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };
const PARTY = idOf('party 0');
const ASSET = idOf('asset');
const BIG = '170141183460469231731687303715884105727';
/** More elements than any page has, so that a trap ends the walk. */
const STEPS_MAX = 400;
const ANSWER = [1, 2, 3].map((n) => ({
  month: `2026-0${n}`,
  party_id: PARTY,
  transfer_type: 'TRANSFER_FUNDS_DISTRIBUTE',
  quantity: BIG,
}));
const STATEMENT = {
  'read the accounts of a month': () => [
    {
      assetId: ASSET,
      accountType: 'LIQUIDITY_FEES_BONUS_DISTRIBUTION',
      marketId: ASSET,
      entries: '1',
      received: BIG,
      sent: '0',
      before: ['0', BIG],
      first: ['0'],
      closing: [BIG],
    },
  ],
  'read the lines of a month': () => [
    {
      at: '2026-02-03T10:00:00Z',
      assetId: ASSET,
      accountType: 'LIQUIDITY_FEES_BONUS_DISTRIBUTION',
      marketId: ASSET,
      transferType: 'TRANSFER_FUNDS_DISTRIBUTE',
      counterpartyId: idOf('party 1'),
      change: BIG,
      balance: BIG,
    },
  ],
  'read how a month is known': () => [
    {
      hasBegun: true,
      isOver: true,
      missing: [
        {
          assetId: ASSET,
          from: '2026-02-10T00:00:00Z',
          to: '2026-03-01T00:00:00Z',
          isNow: false,
        },
      ],
      knownTo: '2026-03-01T02:00:00Z',
      isSentOnly: true,
      notLoaded: '2',
      faulty: '1',
      isQuarantined: true,
    },
  ],
};
const ENTRY = {
  at: '2026-03-01T01:59:00Z',
  transferType: 'TRANSFER_FUNDS_DISTRIBUTE',
  assetId: ASSET,
  quantity: BIG,
  fromParty: idOf('party 1'),
  fromAccount: 'GENERAL',
  fromBalance: '0',
  toParty: PARTY,
  toAccount: 'GENERAL',
  toBalance: BIG,
};

const opened = new AsyncDisposableStack();
const mirrors = new Map<string, FixedConsole>();
let view: ConsolePage | undefined;

beforeAll(async () => {
  for (const [name, facts] of [
    ['calm', calmFacts()],
    ['busy', busyFacts()],
    ['empty', { live: quiet(), status: EMPTY_FACTS, runs: [], settings: [] }],
  ] as const) {
    const world = name === 'empty' ? undefined : worldParts(facts);
    const mirror = await openFixedConsole(facts, 500, {
      ...world,
      ...(world === undefined
        ? {}
        : {
            lake: {
              ...world.lake,
              ask: async () => ({ rows: ANSWER, isCut: false, tookMs: 1 }),
            },
          }),
      answers: {
        ...world?.answers,
        ...ledgerOf(ASSET),
        ...STATEMENT,
        "list a party's entries": () => [ENTRY],
      },
    });
    mirrors.set(name, opened.use(mirror));
  }
  view = opened.use(await openPage({ reducedMotion: 'reduce' }));
});
afterAll(() => opened.disposeAsync());

async function show(
  state: string,
  path: string,
  size: typeof DESK,
): Promise<Page> {
  const mirror = mirrors.get(state);
  if (view === undefined || mirror === undefined) throw new Error('not open');
  const { page } = view;
  await page.setViewportSize(size);
  // A page of its own each time: another fragment alone would load nothing.
  await page.goto('about:blank');
  await page.goto(new URL(path, mirror.url).href);
  await page.locator('[data-connection=live]').waitFor();
  await expect
    .poll(() => page.locator('.view:not([hidden]) .loading').count())
    .toBe(0);
  return page;
}

/** What a mouse can press, in the open dialog or on the page; each gets a number. */
const CONTROLS = `(() => {
  const root = document.querySelector('dialog[open]') ?? document;
  const natural = 'a[href], button, input, select, textarea, summary, [tabindex="0"]';
  const isShown = (node) => node.checkVisibility({ visibilityProperty: true }) && node.getClientRects().length > 0;
  const found = [...root.querySelectorAll('*')].filter((node) => {
    if (!isShown(node) || node.closest('[hidden], [inert]')) return false;
    if (node.matches(natural)) return true;
    const points = (one) => getComputedStyle(one).cursor === 'pointer';
    if (!points(node) || node.closest(natural) !== null || node.closest('label') !== null) return false;
    // A wide place to click is fine if there is a control in it.
    let place = node;
    while (points(place.parentElement)) place = place.parentElement;
    return place.querySelector(natural) === null;
  });
  // The arrow keys choose among radio buttons, so one of each group is enough.
  const groups = new Set();
  return found.filter((node) => {
    if (node.type !== 'radio') return true;
    const isNew = !groups.has(node.name);
    groups.add(node.name);
    return isNew;
  }).map((node, index) => {
    node.dataset.walk = String(index);
    return node.localName + ' ' + (node.ariaLabel ?? (node.id || node.textContent)).trim().slice(0, 40);
  });
})()`;

/** Presses Tab until it comes back, and returns what it never reached. */
async function unreached(page: Page): Promise<readonly string[]> {
  const names = await page.evaluate<readonly string[]>(CONTROLS);
  const reached = new Set<string>();
  const invisible: string[] = [];
  await page.evaluate(
    `(document.querySelector('dialog[open] h2') ?? document.querySelector('.skip')).focus()`,
  );
  // After a click, only a key makes the browser show the focus.
  await page.keyboard.press('Tab');
  await page.keyboard.press('Shift+Tab');
  let still = 0;
  for (let step = 0; step < STEPS_MAX && still < 12; step += 1) {
    const [number, isSeen] = await page.evaluate<
      readonly [string, boolean]
    >(`(() => {
      const node = document.activeElement;
      const { outlineStyle, outlineWidth } = getComputedStyle(node);
      return [node.dataset.walk ?? '', outlineStyle !== 'none' && parseFloat(outlineWidth) > 0];
    })()`);
    // A field of a date holds the focus for a few steps, one for each of its parts.
    still = reached.has(number) || number === '' ? still + 1 : 0;
    if (number !== '' && !reached.has(number) && !isSeen)
      invisible.push(`no sign of the focus: ${names[Number(number)]}`);
    if (number !== '') reached.add(number);
    await page.keyboard.press('Tab');
  }
  return [
    ...names.filter((_, index) => !reached.has(String(index))),
    ...invisible,
  ];
}

const PAGES = [
  ['calm', '/'],
  ['busy', '/'],
  ['empty', '/'],
  ['empty', '/first-night'],
  ['busy', '/first-night'],
  ['calm', '/data'],
  ['empty', '/data'],
  ['calm', '/statement'],
  ['calm', `/statement?party=${PARTY}&month=2026-02`],
  ['busy', '/runs'],
  ['empty', '/runs'],
  ['calm', '/settings'],
] as const;

/** States of a page that a reader brings about, by the page they are on. */
const STATES: Readonly<
  Record<string, { path: string; open: (page: Page) => Promise<void> }>
> = {
  "a party's ledger": {
    path: `/data#party/${PARTY}`,
    open: async (page) => {
      await page.getByRole('table', { name: 'Entries' }).waitFor();
      await expect.poll(() => page.locator('dialog .loading').count()).toBe(0);
    },
  },
  'a question before an order': {
    path: '/data',
    open: async (page) => {
      await page.getByRole('button', { name: 'Fetch newest' }).first().click();
      await page.getByText('Asks the source for').first().waitFor();
    },
  },
  'a result with its chart': {
    path: '/data',
    open: async (page) => {
      await page.getByRole('button', { name: 'Run', exact: true }).click();
      await page.locator('#query-result .figure svg').waitFor();
      await page.locator('#query-result table').waitFor();
    },
  },
  'a table of the lake': {
    path: '/data',
    open: async (page) => {
      await page.locator('.lake-table summary').first().click();
      await page.locator('.lake-table[open] .scroll').first().waitFor();
    },
  },
  'the evidence of a run': {
    path: '/runs',
    open: async (page) => {
      await page.locator('#runs summary').first().click();
      await page.locator('#runs details[open] .evidence').waitFor();
      await page.getByText('All evidence as JSON').first().click();
    },
  },
  "a run's dialog": {
    path: '/runs',
    open: async (page) => {
      await page.locator('#runs summary').first().click();
      await page.locator('#runs a.id').first().click();
      await page.locator('dialog .evidence').waitFor();
    },
  },
  'what a run would cost': {
    path: '/',
    open: async (page) => {
      await page.getByRole('button', { name: 'Run now' }).first().click();
      await page.locator('dialog form.start').waitFor();
    },
  },
  'the explanation of a word': {
    path: '/runs',
    open: async (page) => {
      await page.locator('#quarantine-title .term').click();
      await page.getByRole('tooltip').waitFor();
    },
  },
};

describe('the keyboard alone', () => {
  test.each(PAGES)(
    'reaches everything of the %s mirror at %s',
    async (state, path) => {
      expect(await unreached(await show(state, path, DESK))).toEqual([]);
    },
  );

  test.each(Object.keys(STATES))('reaches everything of %s', async (name) => {
    const { path = '', open } = STATES[name] ?? {};
    const page = await show('calm', path, DESK);
    await open?.(page);
    expect(await unreached(page)).toEqual([]);
  });
});

/** How much wider the page is than the phone, and the elements that make it so. */
const TOO_WIDE = `(() => {
  const { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth <= clientWidth) return [];
  return ['by ' + (scrollWidth - clientWidth) + ' px', ...[...document.querySelectorAll('main *')]
    .filter((node) => node.getBoundingClientRect().right > clientWidth + 1)
    .slice(0, 5).map((node) => node.localName + '.' + node.className + '#' + node.id)];
})()`;

test('a name in the legend of a chart shows and hides its series by the keyboard', async () => {
  const page = await show('calm', '/runs', DESK);
  const name = page.locator('#growth .u-legend').getByRole('button', {
    name: 'Entries',
  });
  await name.focus();
  for (const isShown of ['false', 'true']) {
    await page.keyboard.press('Enter');
    await expect.poll(() => name.getAttribute('aria-pressed')).toBe(isShown);
  }
});

describe('a phone', () => {
  test.each(PAGES)(
    'shows the %s mirror at %s without a sideways scroll',
    async (state, path) => {
      const page = await show(state, path, PHONE);
      expect(await page.evaluate(TOO_WIDE)).toEqual([]);
    },
  );

  test.each(Object.keys(STATES))(
    'shows %s without a sideways scroll',
    async (name) => {
      const { path = '', open } = STATES[name] ?? {};
      const page = await show('calm', path, PHONE);
      await open?.(page);
      expect(await page.evaluate(TOO_WIDE)).toEqual([]);
      const inside = `(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(document.querySelector('dialog'))`;
      expect(await page.evaluate<number>(inside)).toBeLessThanOrEqual(1);
    },
  );

  test.each(['/login', '/no-such-page'])(
    'shows %s without a sideways scroll',
    async (path) => {
      if (view === undefined) throw new Error('not open');
      await view.page.setViewportSize(PHONE);
      await view.page.goto(new URL(path, mirrors.get('calm')?.url).href);
      expect(await view.page.evaluate(TOO_WIDE)).toEqual([]);
    },
  );
});
