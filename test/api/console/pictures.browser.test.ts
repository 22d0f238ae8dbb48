/**
 * Each view in both themes, on a desk and on a phone: nothing overlaps, is cut or leaves
 * the screen, and the picture is the one that was looked at. `UPDATE_PICTURES=1` keeps
 * the new ones; look at them.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type ConsolePage, openPage } from './browser.ts';
import { type FixedConsole, openFixedConsole } from './fixed-console.ts';
import { layoutFaults } from './layout.ts';
import { difference, shrunk } from './picture.ts';
import { emptyFacts } from './empty-world.ts';
import {
  busyFacts,
  calmFacts,
  idOf,
  statementOf,
  worldParts,
} from './world.ts';

const PICTURES = join(import.meta.dirname, 'pictures');
/**
 * The share of a picture's cells that may differ. Fonts and rasterizers vary between
 * machines; a panel that moved changes far more.
 */
const DIFFERENT_MAX = 0.03;
const DESK = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };
const opened = new AsyncDisposableStack();
let calm: FixedConsole | undefined;
let busy: FixedConsole | undefined;
let empty: FixedConsole | undefined;
let view: ConsolePage | undefined;

beforeAll(async () => {
  const calmly = calmFacts();
  const busily = busyFacts();
  const world = worldParts(calmly);
  const answers = { ...world.answers, ...statementOf(idOf('asset')) };
  calm = opened.use(await openFixedConsole(calmly, 500, { ...world, answers }));
  empty = opened.use(await openFixedConsole(emptyFacts(), 500));
  busy = opened.use(await openFixedConsole(busily, 500, worldParts(busily)));
  view = opened.use(
    await openPage({ reducedMotion: 'reduce', timezoneId: 'UTC' }),
  );
  await mkdir(PICTURES, { recursive: true });
});
afterAll(() => opened.disposeAsync());

function parts(): {
  calm: FixedConsole;
  busy: FixedConsole;
  empty: FixedConsole;
  page: ConsolePage['page'];
} {
  if (
    calm === undefined ||
    busy === undefined ||
    empty === undefined ||
    view === undefined
  )
    throw new Error('not open');
  return { calm, busy, empty, page: view.page };
}

const STATEMENT = `/statement?party=${idOf('party 0')}&month=2026-02`;

/** What is there once a view is drawn. */
const DRAWN: Readonly<Record<string, string>> = {
  '/': '#streams article:nth-child(3)',
  '/data': '#parties tr:nth-child(25)',
  '/runs': '#growth .uplot',
  '/settings': '#settings tr:not(.usual) >> nth=0',
  '/first-night': '#night-asks:has-text("requests a second")',
  [STATEMENT]: '#statement table.entries',
};
const VIEWS = [
  ['status', '/', 'calm'],
  ['data', '/data', 'calm'],
  ['runs', '/runs', 'calm'],
  ['settings', '/settings', 'calm'],
  ['statement', STATEMENT, 'calm'],
  ['first-night', '/first-night', 'empty'],
] as const;
const CASES = VIEWS.flatMap(([name, path, mirror]) =>
  (['light', 'dark'] as const).flatMap((theme) =>
    ([DESK, PHONE] as const).map((size) => ({
      name: `${name}-${theme}-${size === DESK ? 'desk' : 'phone'}`,
      path,
      mirror,
      theme,
      size,
    })),
  ),
);

async function show(
  url: string,
  path: string,
  theme: 'light' | 'dark',
  size: typeof DESK,
): Promise<void> {
  const { page } = parts();
  await page.setViewportSize(size);
  await page.emulateMedia({ colorScheme: theme, reducedMotion: 'reduce' });
  await page.goto(new URL(path, url).href);
  await page.locator(DRAWN[path] ?? 'main').waitFor();
  await page.locator('[data-connection=live]').waitFor();
  await expect
    .poll(() => page.locator('.view:not([hidden]) .loading').count())
    .toBe(0);
}

describe('the console', () => {
  test.each(CASES)(
    'looks as it did: $name',
    async ({ name, path, mirror, theme, size }) => {
      const { page, [mirror]: shown } = parts();
      await show(shown.url, path, theme, size);
      expect(await layoutFaults(page)).toEqual([]);
      const now = await shrunk(page, await page.screenshot());
      const file = join(PICTURES, `${name}.png`);
      if (process.env['UPDATE_PICTURES'] === '1') await writeFile(file, now);
      expect(await difference(page, await readFile(file), now)).toBeLessThan(
        DIFFERENT_MAX,
      );
    },
  );

  // The statement and the first night do not change with a nightly run.
  test.each(
    CASES.filter(
      ({ path, mirror, theme }) =>
        theme === 'light' && mirror === 'calm' && path !== STATEMENT,
    ),
  )(
    'overlaps, cuts and loses nothing during a nightly run with many problems: $name',
    async ({ path, theme, size }) => {
      const { page, busy: mirror } = parts();
      await show(mirror.url, path, theme, size);
      expect(await layoutFaults(page)).toEqual([]);
    },
  );

  test.each([
    ['a phone', PHONE],
    ['a desk', { width: 1280, height: 800 }],
  ])('says on one screen of %s that all is well', async (_, size) => {
    const { page, calm: mirror } = parts();
    await show(mirror.url, '/', 'light', size);
    expect(
      await page.evaluate('document.documentElement.scrollHeight'),
    ).toBeLessThanOrEqual(size.height);
  });

  test('folds on a phone the settings that nobody set, and shows them where they are asked for', async () => {
    const { page, calm: mirror } = parts();
    const names = (): Promise<string[]> =>
      page.locator('#settings th:visible').allInnerTexts();
    await show(mirror.url, '/settings', 'light', PHONE);
    expect(await names()).toEqual(['SOURCE_URL', 'DATABASE_URL']);
    await page.getByRole('button', { name: 'Show all 4 settings' }).click();
    expect(await names()).toHaveLength(4);
    await show(mirror.url, '/settings', 'light', DESK);
    expect(await names()).toHaveLength(4);
  });
});

describe('the comparison itself', () => {
  test('tells a picture with a panel that moved, and one of another theme, from the picture that is kept', async () => {
    const { page, calm: mirror } = parts();
    await show(mirror.url, '/', 'light', DESK);
    const kept = await shrunk(page, await page.screenshot());
    await page.evaluate(
      `document.querySelector('.status-summary').style.marginTop = '40px'`,
    );
    expect(
      await difference(page, kept, await shrunk(page, await page.screenshot())),
    ).toBeGreaterThan(DIFFERENT_MAX);
    await page.emulateMedia({ colorScheme: 'dark' });
    expect(
      await difference(page, kept, await shrunk(page, await page.screenshot())),
    ).toBeGreaterThan(0.5);
  });

  test('finds text that lies on text, and what is wider than the screen', async () => {
    const { page, calm: mirror } = parts();
    await show(mirror.url, '/', 'light', PHONE);
    await page.evaluate(
      `document.querySelector('#numbers').style.marginTop = '-60px'`,
    );
    await page.evaluate(`document.querySelector('#now').style.width = '600px'`);
    const found = (await layoutFaults(page)).join('\n');
    expect(found).toContain('text on text');
    expect(found).toContain('beside the screen');
  });
});
