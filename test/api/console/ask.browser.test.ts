/** Data > Ask as a newcomer uses it: what is told stays true to what was asked. */
import { afterEach, describe, expect, test } from 'vitest';
import type {
  LakeAnswer,
  LakeQueries,
  LakeQuestion,
} from '../../../src/api/console/lake-queries.ts';
import type { ConsoleParts } from '../../../src/api/console/ports.ts';
import { NO_LAKE } from '../mirror.ts';
import { accessibilityFaults } from './accessibility.ts';
import { type ConsolePage, openPage } from './browser.ts';
import {
  type FixedConsole,
  openFixedConsole,
  quiet,
  wholeFacts,
} from './fixed-console.ts';

const ASSET = 'ab'.repeat(32);
const OTHER = 'cd'.repeat(32);
const DAYS = Array.from({ length: 3_000 }, (_, n) => ({
  n,
  day: `2026-01-${(n % 28) + 1}`,
}));
const TABLES = [
  {
    name: 'ledger_entries',
    comment: 'Each row of each export.',
    rows: '3',
    bytes: '4',
    version: '1',
    committedAt: '2026-03-01T02:00:00Z',
    access: [{ engine: 'DuckDB', line: 'from delta_scan()' }],
    columns: [{ name: 'quantity', type: 'BIGNUM', comment: 'How much moved.' }],
  },
];
let opened:
  | { readonly console: FixedConsole; readonly view: ConsolePage }
  | undefined;

afterEach(async () => {
  await opened?.view[Symbol.asyncDispose]();
  await opened?.console[Symbol.asyncDispose]();
});

type Page = ConsolePage['page'];

async function openAsk(
  rowsOf: (question: LakeQuestion) => Promise<LakeAnswer['rows']>,
  assets: ConsoleParts['assets'] = [],
): Promise<Page> {
  const lake: LakeQueries = {
    ...NO_LAKE,
    tables: async () => TABLES,
    questions: [
      {
        name: 'daily-flows',
        title: 'what moved',
        parameters: ['since', 'until', 'asset'],
      },
      { name: 'cadence', title: 'how many', parameters: [] },
    ],
    ask: async (question: LakeQuestion) => ({
      rows: await rowsOf(question),
      isCut: false,
      tookMs: 1,
    }),
  };
  const facts = { live: quiet(), status: wholeFacts(), runs: [], settings: [] };
  const console = await openFixedConsole(facts, 500, { lake, assets });
  const view = await openPage();
  opened = { console, view };
  await view.page.goto(new URL('/data', console.url).href);
  await view.page
    .locator('#query-question option')
    .nth(2)
    .waitFor({ state: 'attached' });
  return view.page;
}

async function run(page: Page): Promise<void> {
  await page.getByRole('button', { name: 'Run', exact: true }).click();
}

const assets = async (): Promise<LakeAnswer['rows']> => [{ asset_id: ASSET }];

describe('another question', () => {
  test('takes away the answer to the one before', async () => {
    const page = await openAsk(async () => [{ n: 1 }]);
    await page.getByLabel('Question').selectOption('cadence');
    await run(page);
    await page.locator('#query-result table').waitFor();
    await page.getByLabel('Question').selectOption('daily-flows');
    expect(await page.locator('#query-result').innerText()).toBe('');
  });

  test('is not given the answer of one that was asked before and is answered late', async () => {
    const answer = Promise.withResolvers<LakeAnswer['rows']>();
    const page = await openAsk(async () => answer.promise);
    await page.getByLabel('Question').selectOption('cadence');
    await run(page);
    await page.getByText('Asking the lake').waitFor();
    await page.getByLabel('Question').selectOption('');
    answer.resolve([{ n: 1 }]);
    await page.locator('#query button.primary:not([aria-disabled])').waitFor();
    expect(await page.locator('#query-result').innerText()).toBe('');
  });
});

describe('a question that takes long', () => {
  test('shows a clock, and Stop ends it', async () => {
    const answer = Promise.withResolvers<LakeAnswer['rows']>();
    const page = await openAsk(async () => answer.promise);
    await page.getByLabel('Question').selectOption('cadence');
    await run(page);
    await page.getByText(/\d s of at most 60 s/).waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    const told = page.locator('#query-result');
    await expect.poll(() => told.innerText()).toBe('Stopped.');
    await page.locator('#query button.primary:not([aria-disabled])').waitFor();
    answer.resolve([{ n: 1 }]);
  });
});

describe('a ready question', () => {
  test('says that until is not included and that the beginning of an id is enough, and names the assets', async () => {
    const page = await openAsk(assets);
    await page.getByLabel('Question').selectOption('daily-flows');
    await page.getByLabel('until (not included)').waitFor();
    const asset = page.getByLabel('asset');
    expect(await asset.getAttribute('placeholder')).toBe('beginning of an id');
    const offered = page.locator(
      `datalist#${await asset.getAttribute('list')} option`,
    );
    await expect.poll(() => offered.count()).toBe(1);
    expect(await offered.getAttribute('value')).toBe(ASSET);
  });

  test('reads the ids of the assets once, however often one switches, and again if that failed', async () => {
    let readings = 0;
    const page = await openAsk(async () => {
      readings += 1;
      if (readings === 1) throw new Error('the lake is busy');
      return [{ asset_id: ASSET }];
    });
    const choose = async (name: string) => {
      await page.getByLabel('Question').selectOption(name);
      const isAsked = name === 'daily-flows' ? 1 : 0;
      await expect.poll(() => page.getByLabel('asset').count()).toBe(isAsked);
    };
    await choose('daily-flows');
    await expect.poll(() => readings).toBe(1);
    for (let turn = 0; turn < 4; turn += 1) {
      await choose('cadence');
      await choose('daily-flows');
      await expect
        .poll(() => page.locator('#query datalist option').count())
        .toBe(1);
    }
    expect(readings).toBe(2);
  });
});

describe('your own SQL', () => {
  test('begins with an example that counts each entry once', async () => {
    const page = await openAsk(assets);
    expect(
      await page.getByLabel('SQL', { exact: true }).inputValue(),
    ).toContain('where is_counted');
  });

  test.each(['Run', 'CSV'])(
    'is asked for where there is none, by %s',
    async (button) => {
      const page = await openAsk(assets);
      await page.getByLabel('SQL', { exact: true }).fill(' ');
      await page.getByRole('button', { name: button, exact: true }).click();
      await expect
        .poll(() => page.locator('#query').innerText())
        .toContain('Nothing was asked yet: write SQL');
    },
  );
});

test('says of a long result that there is more below', async () => {
  const page = await openAsk(async () => DAYS);
  await run(page);
  await expect
    .poll(() => page.locator('#query-result').innerText())
    .toContain('3,000 rows, scroll for all');
});

test('says of a short result only how many rows it has', async () => {
  const page = await openAsk(async () => [{ n: 1 }]);
  await run(page);
  await expect
    .poll(() => page.locator('#query-result .hint').innerText())
    .toBe('1 row, 1 ms');
});

test('has an address for each question, which fills the form again and runs nothing by itself', async () => {
  const asked: LakeQuestion[] = [];
  const page = await openAsk(async (question) => {
    asked.push(question);
    return [{ n: 1 }];
  });
  await page.getByLabel('Question').selectOption('daily-flows');
  await page.locator('#query').getByLabel('since').fill('2026-01');
  await run(page);
  await page.locator('#query-result table').waitFor();
  const before = asked.length;
  const ofQuestion = page.url();
  expect(ofQuestion).toContain('#ask/');
  await page.reload();
  await expect
    .poll(() => page.getByLabel('Question').inputValue())
    .toBe('daily-flows');
  expect(await page.locator('#query').getByLabel('since').inputValue()).toBe(
    '2026-01',
  );
  const ofRun = asked.slice(before).filter((one) => 'question' in one);
  expect(ofRun).toEqual([]);

  const sql = `select 'ä#%' as x`;
  const link = `#ask/${encodeURIComponent(JSON.stringify({ sql }))}`;
  await page.goto(new URL(link, page.url()).href);
  await expect.poll(() => page.locator('#query-sql').inputValue()).toBe(sql);
  expect(await page.getByLabel('Question').inputValue()).toBe('');
  // A broken link leaves the form as it is.
  await page.goto(new URL('#ask/%7B%7B', page.url()).href);
  expect(await page.locator('#query-sql').inputValue()).toBe(sql);
});

test('sorts a result by each column, exactly and both ways, with what is empty last', async () => {
  const huge = '9'.repeat(40);
  const page = await openAsk(async () => [
    { name: 'b', held: '10' },
    { name: 'a', held: huge },
    { name: 'c', held: '9' },
    { name: null, held: `${huge.slice(0, -1)}8` },
  ]);
  await run(page);
  const column = async (index: number): Promise<readonly string[]> =>
    page.locator(`#query-result tbody td:nth-child(${index})`).allInnerTexts();
  const heading = (name: string) =>
    page.getByRole('button', { name, exact: true });
  await heading('held (smallest unit)').click();
  expect(await column(1)).toEqual(['a', '–', 'b', 'c']);
  await heading('held (smallest unit)').click();
  expect(await column(1)).toEqual(['c', 'b', '–', 'a']);
  await heading('name').click();
  expect(await column(1)).toEqual(['a', 'b', 'c', '–']);
  const sorted = page.locator('#query-result th[aria-sort]');
  expect(await sorted.getAttribute('aria-sort')).toBe('ascending');
});

test('shows amounts in the units of known assets, in the table, the filter and the chart', async () => {
  const digits = '1234567890123456789012345000001';
  const page = await openAsk(
    async () => [
      { day: '2026-01-01', asset_id: ASSET, quantity: digits, entries: 3 },
      { day: '2026-01-02', asset_id: ASSET, quantity: '1500000', entries: 1 },
      { day: '2026-01-02', asset_id: OTHER, quantity: '7000', entries: 1 },
      { day: '2026-01-03', asset_id: OTHER, quantity: '9000', entries: 1 },
    ],
    [{ id: ASSET, symbol: 'USDT', decimals: 6 }],
  );
  await run(page);
  const table = page.locator('#query-result table');
  await table.waitFor();
  expect(await table.locator('th').allInnerTexts()).toEqual([
    'day',
    'asset_id',
    'quantity (smallest unit if no symbol)',
    'entries',
  ]);
  const amounts = table.locator('tbody td:nth-child(3)');
  const whole = '1,234,567,890,123,456,789,012,345.000001 USDT';
  expect(await amounts.allInnerTexts()).toEqual([
    whole,
    '1.5 USDT',
    '7,000',
    '9,000',
  ]);
  await page
    .getByLabel('Asset', { exact: true })
    .selectOption({ label: 'USDT' });
  await expect
    .poll(() => page.locator('.figure svg title').allTextContents())
    .toContain('2026-01-02 · quantity: 1.5 USDT');
  await page.getByLabel('Show rows that contain').fill('1.5 us');
  await expect.poll(() => amounts.allInnerTexts()).toEqual(['1.5 USDT']);
  expect(await accessibilityFaults(page)).toEqual([]);
});

test('offers what was asked before, the newest first and each once, and fills the form with it', async () => {
  const page = await openAsk(assets);
  const before = page.getByLabel('Asked before');
  expect(await before.isVisible()).toBe(false);
  const sql = page.getByLabel('SQL', { exact: true });
  for (const text of ['select 1 as n', 'select 2 as n', 'select 1 as n']) {
    await sql.fill(text);
    await run(page);
    await page.locator('#query button.primary:not([aria-disabled])').waitFor();
    await page.locator('#query-result table').waitFor();
  }
  await page.reload();
  await before.waitFor();
  expect(await before.locator('option').allTextContents()).toEqual([
    'choose one',
    'select 1 as n',
    'select 2 as n',
  ]);
  await before.selectOption({ label: 'select 2 as n' });
  await expect.poll(() => sql.inputValue()).toBe('select 2 as n');
});

test('filters a result by a text in any column, as stored or as shown, and says how many rows are left', async () => {
  const page = await openAsk(async () =>
    DAYS.map(({ n, day }) => ({ party_id: ASSET, day, held: `${n}` })),
  );
  await run(page);
  const filter = page.getByLabel('Show rows that contain');
  await filter.fill('2,99');
  const told = page.locator('#query-result .filter [role=status]');
  await expect.poll(() => told.innerText()).toBe('10 of 3,000 shown');
  const rows = page.locator('#query-result tbody tr');
  expect(await rows.count()).toBe(10);
  await page
    .getByRole('button', { name: 'held (smallest unit)', exact: true })
    .click();
  expect(await rows.first().locator('td').last().innerText()).toBe('2,999');
  expect(await told.innerText()).toBe('10 of 3,000 shown');
  expect(await accessibilityFaults(page)).toEqual([]);
  await filter.fill('nowhere');
  await expect.poll(() => told.innerText()).toBe('0 of 3,000 shown');
  await filter.fill('');
  await expect.poll(() => rows.count()).toBe(100);
  expect(await told.innerText()).toBe('');
});

test('copies a whole id from its shortened form, over https and over plain http', async () => {
  const page = await openAsk(assets);
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await run(page);
  const id = page.getByRole('button', { name: /copy the whole id/ });
  for (const prepare of [
    '0',
    'Object.defineProperty(navigator, "clipboard", { value: undefined })',
  ]) {
    await page.evaluate('navigator.clipboard.writeText("nothing")');
    await page.evaluate(
      'window.read = navigator.clipboard.readText.bind(navigator.clipboard)',
    );
    await page.evaluate(prepare);
    await id.click();
    await page.getByText('Copied', { exact: true }).first().waitFor();
    expect(await page.evaluate('window.read()')).toBe(ASSET);
    await page.locator('.copy-id:not([aria-disabled])').waitFor();
  }
});

test('names tables and columns beside the editor, with the comment of each table, and the keyboard inserts them', async () => {
  const page = await openAsk(assets);
  const sql = page.getByLabel('SQL', { exact: true });
  await sql.fill('select  from');
  await sql.press('Home');
  for (let n = 0; n < 7; n += 1) await sql.press('ArrowRight');
  const table = page.locator('.names summary', { hasText: 'ledger_entries' });
  await table.focus();
  await page.keyboard.press('Enter');
  await page
    .locator('.names', { hasText: 'Each row of each export.' })
    .waitFor();
  expect(await accessibilityFaults(page)).toEqual([]);
  await page.keyboard.press('Tab');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  expect(await sql.inputValue()).toBe('select quantity from');
  // The cursor is behind the name, so the next one goes there.
  await sql.press('End');
  await page.getByRole('button', { name: /^ledger_entries table/ }).click();
  expect(await sql.inputValue()).toBe('select quantity from ledger_entries');
  await page.getByLabel('Question').selectOption('cadence');
  expect(await page.locator('.names-panel').isVisible()).toBe(false);
});

test('folds the names on a phone, where nothing goes beside the screen', async () => {
  const page = await openAsk(assets);
  await page.setViewportSize({ width: 390, height: 844 });
  await page.reload();
  const summary = page.locator('.names-panel > summary');
  await summary.waitFor();
  expect(await page.locator('.names').isVisible()).toBe(false);
  await summary.click();
  await page.locator('.names summary').click();
  await run(page);
  await page.locator('#query-result table').waitFor();
  for (const colorScheme of ['dark', 'light'] as const) {
    await page.emulateMedia({ colorScheme });
    expect(await accessibilityFaults(page)).toEqual([]);
  }
  const sideways = await page.evaluate(
    'document.documentElement.scrollWidth - document.documentElement.clientWidth',
  );
  expect(sideways).toBe(0);
});

test.each([
  ['a desk', { width: 1280, height: 900 }],
  ['a phone', { width: 390, height: 844 }],
])(
  'a chart by long names cuts no label and lays none on another, on %s',
  async (_, size) => {
    const page = await openAsk(async () =>
      'ABCDEFGHIJKL'.split('').map((name, n) => ({
        market: `${name}_MAKER_FEE_RECEIVE`,
        paid: `${n + 1}00`,
      })),
    );
    await page.setViewportSize(size);
    await run(page);
    await page.locator('#query-result .figure svg').waitFor();
    const faults = await page.evaluate<readonly string[]>(`(() => {
    const frame = document.querySelector('.figure svg').getBoundingClientRect();
    const boxes = [...document.querySelectorAll('.figure svg text')]
      .map((node) => ({ text: node.textContent, box: node.getBoundingClientRect() }))
      .filter(({ text }) => text.includes('MAKER'));
    if (boxes.length === 0) return ['no label'];
    return boxes.flatMap(({ text, box }, index) => [
      ...(box.left < frame.left - 1 || box.right > frame.right + 1 ? ['cut: ' + text] : []),
      ...(index > 0 && box.left < boxes[index - 1].box.right ? ['on another: ' + text] : []),
    ]);
  })()`);
    expect(faults).toEqual([]);
  },
);

const MOMENTS = [
  '2026-03-01 05:25:51+00',
  '2026-03-01 05:25:51.123456+00',
  '2026-03-02 05:25:51',
];
test.each([
  [
    'names, if the time behind the figures describes its row',
    MOMENTS.map((latest, n) => ({
      party: `p${n}`,
      sent: `${n + 1}97`,
      latest,
    })),
    'sent, by party',
    'stacked',
  ],
  [
    'names, if a moment stands behind them',
    MOMENTS.map((as_of, n) => ({
      party: `p${n}`,
      as_of,
      balance: `${n + 1}5`,
    })),
    'balance, by party',
    'stacked',
  ],
  [
    'moments, if they come first',
    MOMENTS.map((vega_time, n) => ({
      vega_time,
      change: `${n + 1}5`,
      kind: 'a',
    })),
    'change, by vega_time',
    'line',
  ],
  [
    'days that are written as their first moments',
    ['01', '02', '03'].map((day) => ({
      party: `p${day}`,
      day: `2026-03-${day} 00:00:00+00`,
      sent: `${Number(day)}5`,
    })),
    'by day',
    'stacked',
  ],
  [
    'moments of which one is no time',
    [...MOMENTS, '9999-12-31 (infinity)'].map((at, n) => ({
      at,
      n: `${n + 1}5`,
    })),
    'n, by at',
    'line',
  ],
])(
  'a chart stands over %s, and each shape has a place',
  async (_, rows, label, form) => {
    const page = await openAsk(async () => rows);
    await run(page);
    const drawn = page.locator('#query-result .figure svg');
    await drawn.waitFor();
    const said = (await drawn.getAttribute('aria-label')) ?? '';
    expect(said.replace(' (smallest unit)', '')).toContain(label);
    expect(await page.getByLabel('Drawn as').inputValue()).toBe(form);
    expect(await drawn.innerHTML()).not.toContain('NaN');
    expect(opened?.view.problems).toEqual([]);
  },
);

test('a chart ends above its highest bar, at a number', async () => {
  const page = await openAsk(async () => [
    { party: 'a', n: 97 },
    { party: 'b', n: 12 },
  ]);
  await run(page);
  const drawn = page.locator('#query-result .figure svg');
  await drawn.waitFor();
  const texts = await drawn.locator('text').allTextContents();
  expect(texts).toEqual(expect.arrayContaining(['0', '50', '100']));
});
