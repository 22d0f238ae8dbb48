/** The page of the first night: before it, while it runs, and after it. */
import { afterEach, describe, expect, test } from 'vitest';
import { EMPTY_FACTS } from '../mirror.ts';
import { accessibilityFaults } from './accessibility.ts';
import { type ConsolePage, openPage } from './browser.ts';
import {
  type FixedConsole,
  type FixedParts,
  openFixedConsole,
  quiet,
  run,
  UNDER_WAY,
} from './fixed-console.ts';
import { emptyFacts, LOOK } from './empty-world.ts';
import { layoutFaults } from './layout.ts';

const TOKEN = 'write-token-of-the-tests-1';
const READ_TOKEN = 'read-token-of-the-tests-2';
const PHONE = { width: 390, height: 844 };
const disposables: AsyncDisposable[] = [];
afterEach(async () => {
  for (const one of disposables.splice(0).toReversed())
    await one[Symbol.asyncDispose]();
});

async function open(
  path: string,
  parts: FixedParts = {},
): Promise<{
  page: ConsolePage['page'];
  fixed: FixedConsole;
  view: ConsolePage;
}> {
  const fixed = await openFixedConsole(emptyFacts(), 50, {
    look: async () => LOOK,
    ...parts,
  });
  disposables.push(fixed);
  const view = await openPage();
  disposables.push(view);
  await view.page.goto(new URL(path, fixed.url).href);
  return { page: view.page, fixed, view };
}

describe('before the first night', () => {
  test('the status of an empty mirror leads to the page of the first night', async () => {
    const { page } = await open('/');
    await page
      .getByRole('link', { name: 'See what it will request, and start it' })
      .click();
    await page.waitForURL('**/first-night');
    await expect.poll(() => page.title()).toContain('First night');
  });

  test('the page shows what is set, looks at the source, and starts the night', async () => {
    const { page, fixed, view } = await open('/first-night');
    for (const text of [
      'https://ledger.example.com/',
      's3://bucket/prefix',
      '0 2 * * * (Europe/Zurich)',
      'every party that the source lists',
    ])
      await page.locator('#night-set', { hasText: text }).waitFor();
    await page
      .locator('#night-asks', { hasText: 'At most 10 requests a second.' })
      .waitFor();
    expect(await accessibilityFaults(page)).toEqual([]);

    await page.getByRole('button', { name: 'Look at the source' }).click();
    const look = page.locator('#night-look');
    for (const text of [
      'about 12,029 to 15,035 requests',
      'about 20 min 3 s to 25 min 4 s',
      'Parties: about 12,000 to 15,000 rows in about 26 to 32 requests',
      'Checkpoints: 900 rows in 2 requests',
      'at least 2.0 MiB of JSON',
    ])
      await look.getByText(text).waitFor();
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.setViewportSize(PHONE);
    expect(await layoutFaults(page)).toEqual([]);

    const [request] = await Promise.all([
      page.waitForRequest(
        (sent) => sent.method() === 'POST' && sent.url().endsWith('/runs'),
      ),
      page.getByRole('button', { name: 'Start the first night' }).click(),
    ]);
    expect(request.postDataJSON()).toMatchObject({ kind: 'nightly' });

    const underWay = run({ kind: 'nightly', subject: 'now', ...UNDER_WAY });
    fixed.facts.live = { ...quiet(), openRuns: [underWay], revision: '1' };
    await page.locator('#night-now', { hasText: 'nightly run' }).waitFor();
    await page.locator('#night-plan').waitFor({ state: 'hidden' });
    expect(await accessibilityFaults(page)).toEqual([]);

    fixed.facts.live = { ...quiet(), revision: '2' };
    fixed.facts.status = {
      ...EMPTY_FACTS,
      nights: {
        ...EMPTY_FACTS.nights,
        last: {
          runId: underWay.runId,
          verdict: 'complete',
          startedAt: underWay.startedAt,
          finishedAt: '2026-03-01T02:20:00Z',
        },
      },
    };
    await page
      .locator('#night-state', {
        hasText: 'ended complete at 2026-03-01 02:20',
      })
      .waitFor();
    expect(
      await page
        .getByRole('link', { name: 'Read its evidence' })
        .getAttribute('href'),
    ).toBe(`runs#run/${underWay.runId}`);
    expect(await layoutFaults(page)).toEqual([]);
    expect([...view.foreign]).toEqual([]);
  });

  test('a look that the source does not answer shows the reason, and may be repeated', async () => {
    const { page } = await open('/first-night', {
      look: async () => {
        throw new Error('connect ECONNREFUSED');
      },
    });
    const button = page.getByRole('button', { name: 'Look at the source' });
    await button.click();
    await page
      .getByText('The look at the source failed: connect ECONNREFUSED.')
      .waitFor();
    await expect.poll(() => button.getAttribute('aria-disabled')).toBe(null);
  });
});

describe("a reader's token", () => {
  test.each([
    [READ_TOKEN, false],
    [TOKEN, true],
  ])(
    'decides whether the page offers to look and to start: %s',
    async (token, isOffered) => {
      const { page } = await open(
        `/login?next=${encodeURIComponent('/first-night')}`,
        {
          token: TOKEN,
          readToken: READ_TOKEN,
        },
      );
      await page.getByLabel('Token').fill(token);
      await page.getByRole('button', { name: 'Log in' }).click();
      await page
        .locator(`[data-role=${isOffered ? 'write' : 'read'}]`)
        .waitFor();
      await page
        .locator('#night-deal button')
        .first()
        .waitFor({ state: 'attached' });
      expect(await page.locator('#night-deal button:visible').count()).toBe(
        isOffered ? 2 : 0,
      );
      expect(await page.locator('#night-plan .readers').isVisible()).toBe(
        !isOffered,
      );
      expect(await accessibilityFaults(page)).toEqual([]);
    },
  );
});
