/** The words of the glossary, explained where they stand in the console. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { accessibilityFaults } from './accessibility.ts';
import { type ConsolePage, openPage } from './browser.ts';
import { type FixedConsole, openFixedConsole } from './fixed-console.ts';
import { layoutFaults } from './layout.ts';
import { calmFacts, worldParts } from './world.ts';

const DESK = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };
const COMPLETE =
  'complete: up to the stated time, the mirror has everything that the source showed, and every check agrees.';
const QUARANTINE = 'quarantine: the state of a ledger or segment';

let view: ConsolePage | undefined;
let mirror: FixedConsole | undefined;

beforeAll(async () => {
  const facts = calmFacts();
  mirror = await openFixedConsole(facts, 500, worldParts(facts));
  view = await openPage({ reducedMotion: 'reduce', hasTouch: true });
});
afterAll(async () => {
  await view?.[Symbol.asyncDispose]();
  await mirror?.[Symbol.asyncDispose]();
});

async function open(
  path: string,
  size = DESK,
): Promise<{
  page: ConsolePage['page'];
  tip: ReturnType<ConsolePage['page']['locator']>;
}> {
  if (view === undefined || mirror === undefined) throw new Error('not open');
  const { page } = view;
  await page.setViewportSize(size);
  await page.goto(new URL(path, mirror.url).href);
  await page.locator('[data-connection=live]').waitFor();
  return { page, tip: page.getByRole('tooltip') };
}

describe('a word of the glossary', () => {
  test.each([
    ['/', '#sentence', 'complete', COMPLETE],
    ['/', '#streams .badge', 'complete', COMPLETE],
    ['/', '#numbers', 'Segment', 'segment: a published, immutable object'],
    ['/runs', '#quarantine-title', 'Quarantine', QUARANTINE],
    ['/data', '.hint', 'ready question', 'ready question: a question, such as'],
    ['/first-night', '#night-plan-title', 'source', 'source: the HTTP query'],
  ])(
    'is explained on %s in %s when the pointer is on it: %s',
    async (path, place, word, meaning) => {
      const { page, tip } = await open(path);
      await page
        .locator(`${place} .term`, { hasText: word })
        .first()
        .dispatchEvent('pointerenter', { pointerType: 'mouse' });
      expect(await tip.textContent()).toContain(meaning);
    },
  );

  test('keeps its explanation while the pointer is on the explanation itself', async () => {
    const { page, tip } = await open('/runs');
    await page.locator('#quarantine-title .term').hover();
    await tip.hover();
    expect(await tip.isVisible()).toBe(true);
    await page.mouse.move(0, 0);
    await tip.waitFor({ state: 'hidden' });
  });

  test('is explained by the keyboard alone, until Escape or the next element', async () => {
    const { page, tip } = await open('/');
    const word = page.locator('#streams .badge .term').first();
    await word.focus();
    await expect.poll(() => tip.textContent()).toBe(COMPLETE);
    expect(await word.getAttribute('aria-describedby')).toBe('term-tip');
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.keyboard.press('Escape');
    await tip.waitFor({ state: 'hidden' });
    await page.keyboard.press('Shift+Tab');
    await page.keyboard.press('Tab');
    await tip.waitFor();
    await page.keyboard.press('Tab');
    await expect.poll(() => word.getAttribute('aria-describedby')).toBe(null);
  });

  test('is explained on a phone by a touch, beside nothing, until another touch', async () => {
    const { page, tip } = await open('/runs', PHONE);
    await page.locator('#quarantine-title .term').tap();
    await expect.poll(() => tip.textContent()).toContain(QUARANTINE);
    const box = await tip.boundingBox();
    expect(box?.x).toBeGreaterThanOrEqual(0);
    expect((box?.x ?? 0) + (box?.width ?? 0)).toBeLessThanOrEqual(PHONE.width);
    await page.locator('.brand').tap();
    await tip.waitFor({ state: 'hidden' });
    expect(await layoutFaults(page)).toEqual([]);
  });

  test("is explained in a run's evidence, and Escape leaves its dialog open", async () => {
    const { page, tip } = await open('/runs');
    await page.locator('#runs summary').first().click();
    await page.locator('#runs a.id').first().click();
    const dialog = page.getByRole('dialog');
    await dialog.locator('.term', { hasText: 'complete' }).first().focus();
    await expect.poll(() => tip.textContent()).toBe(COMPLETE);
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.keyboard.press('Escape');
    await tip.waitFor({ state: 'hidden' });
    expect(await dialog.isVisible()).toBe(true);
  });
});
