/** The focus of a reader with a keyboard, while the mirror changes. */
import { expect, test } from 'vitest';
import { openPage } from './browser.ts';
import { openFixedConsole, quiet } from './fixed-console.ts';
import { calmFacts, idOf, ledgerOf, worldParts } from './world.ts';

test("a party's dialog gives the focus back to its row, though the mirror changed meanwhile", async () => {
  const facts = calmFacts();
  const world = worldParts(facts);
  await using fixed = await openFixedConsole(facts, 50, {
    ...world,
    answers: { ...world.answers, ...ledgerOf(idOf('asset')) },
  });
  await using view = await openPage();
  const { page } = view;
  await page.goto(new URL('/data', fixed.url).href);
  await page.locator('#parties .id').first().focus();
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').getByText('Mirrored up to').waitFor();
  const reloaded = page.waitForResponse((one) =>
    one.url().endsWith('console/tables'),
  );
  fixed.facts.live = { ...quiet(), revision: '1' };
  await reloaded;
  await page.keyboard.press('Escape');
  await expect
    .poll(() => page.evaluate('document.activeElement.title'))
    .toBe(idOf('party 0'));
});
