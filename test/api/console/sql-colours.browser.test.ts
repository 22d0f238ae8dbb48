/** The editor's SQL in colours: on the same lines as the text, and readable. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { accessibilityFaults } from './accessibility.ts';
import { type ConsolePage, openPage } from './browser.ts';
import { type FixedConsole, openFixedConsole } from './fixed-console.ts';
import { calmFacts, worldParts } from './world.ts';

/** WCAG's bound for text of a normal size. */
const CONTRAST_MIN = 4.5;
const DESK = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };
const SQL = `-- what moved
select asset_id, exact_sum(quantity) /* all */ from ledger_entries
where is_counted = true and party_id <> 'it''s' and 7 // 2 in (3)
group by 1`;

let view: ConsolePage | undefined;
let mirror: FixedConsole | undefined;

beforeAll(async () => {
  const facts = calmFacts();
  mirror = await openFixedConsole(facts, 500, worldParts(facts));
  view = await openPage({ reducedMotion: 'reduce' });
});
afterAll(async () => {
  await view?.[Symbol.asyncDispose]();
  await mirror?.[Symbol.asyncDispose]();
});

async function open(
  size = DESK,
  colorScheme: 'light' | 'dark' = 'light',
): Promise<ConsolePage['page']> {
  if (view === undefined || mirror === undefined) throw new Error('not open');
  const { page } = view;
  await page.setViewportSize(size);
  await page.emulateMedia({ colorScheme });
  await page.goto(new URL('/data', mirror.url).href);
  await page.locator('.paint').waitFor();
  return page;
}

async function painted(
  page: ConsolePage['page'],
): Promise<readonly (readonly [string, string])[]> {
  return page.evaluate(
    `[...document.querySelectorAll('.paint span')].map(({ className, textContent }) => [className.slice(4), textContent])`,
  );
}

describe('the SQL of the editor', () => {
  test('is coloured as DuckDB reads it, which is not as MySQL does', async () => {
    const page = await open();
    await page.getByLabel('SQL', { exact: true }).fill(SQL);
    const parts = await painted(page);
    for (const part of [
      ['comment', '-- what moved'],
      ['keyword', 'select'],
      ['comment', '/* all */'],
      ['boolean', 'true'],
      ['string', "'it''s'"],
      ['number', '2'],
      ['keyword', 'group'],
      ['keyword', 'and'],
      ['function', 'exact_sum'],
    ])
      expect(parts).toContainEqual(part);
    expect(await page.locator('.paint').textContent()).toBe(`${SQL}\n`);
    expect([...(view?.foreign ?? []), ...(view?.problems ?? [])]).toEqual([]);
  });

  test('is the text that was typed, inserted, completed or linked', async () => {
    const page = await open();
    const area = page.getByLabel('SQL', { exact: true });
    const text = page.locator('.paint');
    await area.fill('select ');
    await page.locator('.names summary').first().click();
    await page.locator('.insert').first().click();
    await expect
      .poll(() => text.textContent())
      .toBe(`${await area.inputValue()}\n`);
    await area.press('End');
    await area.pressSequentially(' lim');
    await area.press('Tab');
    expect(await area.inputValue()).toMatch(/ limit$/);
    expect(await text.textContent()).toBe(`${await area.inputValue()}\n`);
    await page.evaluate(
      `location.hash = '#ask/' + encodeURIComponent('{"sql":"select 42"}')`,
    );
    await expect.poll(() => text.textContent()).toBe('select 42\n');
  });

  test.each([
    ['a desk', DESK],
    ['a phone', PHONE],
  ])(
    'lies on %s where the text area has its text, scrolled or not',
    async (_, size) => {
      const page = await open(size);
      const area = page.getByLabel('SQL', { exact: true });
      await area.fill(`${SQL}\n`.repeat(12) + 'x'.repeat(300));
      await area.press('Control+End');
      const heights = (): Promise<readonly number[]> =>
        page.evaluate<readonly number[]>(
          `['.sql textarea', '.paint'].flatMap((one) => {
          const { scrollHeight, clientWidth, scrollTop } = document.querySelector(one);
          return [scrollHeight, clientWidth, scrollTop];
        })`,
        );
      await expect
        .poll(async () => {
          const [height, width, top = 0, ...below] = await heights();
          const ofText = [height, width, top].join(' ');
          return top > 0 && ofText === below.join(' ');
        })
        .toBe(true);
    },
  );

  test.each(['light', 'dark'] as const)(
    'has contrast in the %s theme, and axe finds nothing',
    async (theme) => {
      const page = await open(DESK, theme);
      await page.getByLabel('SQL', { exact: true }).fill(SQL);
      const contrasts = await page.evaluate<readonly number[]>(`(() => {
        const context = document.createElement('canvas').getContext('2d');
        const light = (colour) => {
          context.fillStyle = colour;
          context.fillRect(0, 0, 1, 1);
          const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].map((value) => {
            const part = value / 255;
            return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
          });
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const paper = light(getComputedStyle(document.querySelector('.paint')).backgroundColor);
        return [...document.querySelectorAll('.paint span')].map((part) => {
          const ink = light(getComputedStyle(part).color);
          return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
        });
      })()`);
      expect(contrasts.length).toBeGreaterThan(8);
      expect(Math.min(...contrasts)).toBeGreaterThan(CONTRAST_MIN);
      expect(await accessibilityFaults(page)).toEqual([]);
    },
  );
});
