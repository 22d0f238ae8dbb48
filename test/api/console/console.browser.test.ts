/**
 * The console over a real mirror of a sandbox, as an operator and an analyst use test.
 */
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startSandbox, type Sandbox } from '../../support/sandbox.ts';
import { type RealApp, startRealApp } from '../../app/real-app.ts';
import { accessibilityFaults } from './accessibility.ts';
import { type ConsolePage, openPage } from './browser.ts';
import { quarantineExport } from '../../support/mirror-arrange.ts';
import { currentSegments } from '../../support/mirror-state.ts';

const TOKEN = 'correct-horse-battery-staple';
const WHOLE = /^The mirror is complete/;
const opened = new AsyncDisposableStack();
let openedSandbox: Sandbox | undefined;
let openedMirror: RealApp | undefined;
let openedView: ConsolePage | undefined;

beforeAll(async () => {
  openedSandbox = opened.use(
    await startSandbox({
      parties: 60,
      entriesMean: 80,
      historyMs: 3 * 86_400_000,
      rateLimit: 'none',
    }),
  );
  openedMirror = opened.use(
    await startRealApp({
      SOURCE_URL: openedSandbox.url,
      SOURCE_PAGE_SIZE: '10',
      API_TOKEN: TOKEN,
    }),
  );
  openedView = opened.use(await openPage());
});
afterAll(() => opened.disposeAsync());

function parts(): {
  sandbox: Sandbox;
  mirror: RealApp;
  page: ConsolePage['page'];
  view: ConsolePage;
} {
  if (
    openedSandbox === undefined ||
    openedMirror === undefined ||
    openedView === undefined
  )
    throw new Error('not open');
  return {
    sandbox: openedSandbox,
    mirror: openedMirror,
    view: openedView,
    page: openedView.page,
  };
}

async function biggestParty(): Promise<{ id: string; rows: number }> {
  const segments = await currentSegments(parts().mirror.app.warehouse.pool);
  const ledgers = [...Map.groupBy(segments, ({ partyId }) => partyId)].map(
    ([id, ownSegments]) => ({
      id,
      rows: ownSegments.reduce((sum, { rows }) => sum + rows, 0),
    }),
  );
  const [biggest] = ledgers.toSorted((a, b) => b.rows - a.rows);
  if (biggest === undefined) throw new Error('nothing was exported');
  return biggest;
}

function held(): PromiseWithResolvers<void> {
  return Promise.withResolvers();
}

describe('an operator', () => {
  test('logs in: a wrong token is told, the right one opens the page', async () => {
    const { page, mirror } = parts();
    await page.goto(mirror.url);
    expect(new URL(page.url()).pathname).toBe('/login');
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.getByLabel('Token').fill('not the token');
    await page.keyboard.press('Enter');
    await page.getByText('That is not the token').waitFor();
    await page.getByLabel('Token').fill(TOKEN);
    await page.getByRole('button', { name: 'Log in' }).click();
    await page
      .getByRole('heading', { name: 'Nothing has been mirrored yet' })
      .waitFor();
  });

  test('starts a nightly run, watches it, and sees the mirror complete', async () => {
    const { page, sandbox } = parts();
    // Held in the middle of the syncs, and twice amid the ledgers, until the page has
    // shown test.
    const syncs = held();
    const few = held();
    const more = held();
    let pages = 0;
    let ledgers = 0;
    const release = sandbox.faults.add(({ route }) => {
      if (route !== 'export') {
        pages += 1;
        return pages > 6 ? { until: syncs.promise } : undefined;
      }
      ledgers += 1;
      if (ledgers > 30) return { until: more.promise };
      return ledgers > 10 ? { until: few.promise } : undefined;
    });
    await page.getByRole('button', { name: 'Run now' }).click();
    await page
      .getByRole('dialog')
      .getByText('Asks for every page of both lists')
      .waitFor();
    expect(await accessibilityFaults(page)).toEqual([]);
    await page
      .getByRole('dialog')
      .getByRole('button', { name: 'Start' })
      .click();
    await page.locator('#now article', { hasText: 'nightly run' }).waitFor();
    syncs.resolve();
    const meter = page.getByRole('progressbar', { name: 'ledgers' });
    const done = async (): Promise<number> =>
      Number((await meter.getAttribute('aria-valuenow')) ?? 0);
    await expect.poll(done).toBeGreaterThan(0);
    const first = await done();
    few.resolve();
    await expect.poll(done).toBeGreaterThan(first);
    more.resolve();
    await page.getByRole('heading', { name: WHOLE }).waitFor();
    release();
    await page.getByRole('link', { name: 'Runs', exact: true }).click();
    await page
      .locator('#runs li', { hasText: 'nightly run' })
      .locator('.badge', { hasText: 'complete' })
      .waitFor();
    await page.locator('.day[data-is=complete]').waitFor();
    await page.getByText('Freshness over time').click();
    await page.locator('#lines li svg').first().waitFor();
  });

  test('reads what a run cost, stage by stage', async () => {
    const { page } = parts();
    await page
      .locator('#runs li', { hasText: 'nightly run' })
      .locator('summary')
      .first()
      .click();
    await page.getByText('Cost by stage').click();
    const table = page.getByRole('table', { name: 'Cost by stage' });
    await expect
      .poll(() => table.locator('tbody th').allInnerTexts())
      .toEqual([
        'parties',
        'checkpoints',
        'exports, and 1 for the source’s time',
        'load',
        'verify',
        'all',
      ]);
    const requests = await table
      .locator('tbody tr td:nth-child(2)')
      .allInnerTexts();
    const [parties = 0, checkpoints = 0, exports = 0, load, verify, all] =
      requests.map((text) => Number(text.split(' ', 1)[0]));
    expect([parties, checkpoints, exports].every((count) => count > 0)).toBe(
      true,
    );
    expect([load, verify, all]).toEqual([
      0,
      0,
      parties + checkpoints + exports,
    ]);
  });

  test('follows the link of a run, and comes back to the view', async () => {
    const { page } = parts();
    const link = page
      .locator('#runs li', { hasText: 'nightly run' })
      .locator('a.id')
      .first();
    const runId = await link.innerText();
    await link.click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('heading', { name: /nightly run/ }).waitFor();
    expect(new URL(page.url()).hash).toBe(`#run/${runId}`);
    await page.reload();
    await dialog.getByRole('link', { name: runId }).waitFor();
    await page.keyboard.press('Escape');
    await expect.poll(() => new URL(page.url()).hash).toBe('');
  });

  test('is told what an audit would ask, starts it, and cancels it', async () => {
    const { page, sandbox } = parts();
    const pages = held();
    const release = sandbox.faults.add(({ route }) =>
      route === 'export' ? undefined : { until: pages.promise },
    );
    await page.getByRole('link', { name: 'Status', exact: true }).click();
    await page.getByRole('button', { name: 'Run now' }).click();
    const dialog = page.getByRole('dialog');
    // Both lists whole, in pages of ten, and an export of each party.
    await dialog
      .getByText(
        /Sends about [\d,]+ requests to the source, .* 6\d of them are exports/,
      )
      .waitFor();
    await dialog
      .getByText(
        /Sends at least \d+ requests .* Where the source lists equal rows, a page takes two/,
      )
      .waitFor();
    await dialog.getByLabel('Audit the lists').check();
    await dialog.getByRole('button', { name: 'Start' }).click();
    for (const list of ['parties', 'checkpoints']) {
      await page.getByRole('button', { name: `Cancel: sync ${list}` }).click();
      await page.getByRole('button', { name: 'Yes, cancel it' }).click();
    }
    await page.getByText('Nothing is running').waitFor();
    release();
    pages.resolve();
    await page.getByRole('link', { name: 'Runs', exact: true }).click();
    await expect
      .poll(() =>
        page
          .locator('#runs li', { hasText: 'cancelled' })
          .locator('.what')
          .allInnerTexts(),
      )
      .toEqual(expect.arrayContaining(['sync parties', 'sync checkpoints']));
  });

  test('orders an export by a click, and gets the file', async () => {
    const { page } = parts();
    const { id, rows } = await biggestParty();
    await page.getByRole('link', { name: 'Data', exact: true }).click();
    await page.getByRole('searchbox').fill(id.slice(0, 12));
    const row = page.locator('#parties tr', { hasText: id.slice(0, 8) });
    await expect.poll(() => page.locator('#parties tr').count()).toBe(1);
    await row.getByRole('button', { name: `Fetch newest: ${id}` }).click();
    await row.getByText('Asks the source for').waitFor();
    await row.getByRole('button', { name: 'Fetch', exact: true }).click();
    const link = row.getByRole('link', { name: /^Download \(/ });
    await link.waitFor();
    const [ordered] = await Promise.all([
      page.waitForEvent('download'),
      link.click(),
    ]);
    const lines = (await readFile(await ordered.path(), 'utf8'))
      .trimEnd()
      .split('\n');
    expect(lines).toHaveLength(rows + 1);
    expect(ordered.suggestedFilename()).toBe(`ledger_entries_${id}.csv`);
    const [mirrored] = await Promise.all([
      page.waitForEvent('download'),
      row.getByRole('link', { name: `Download copy: ${id}` }).click(),
    ]);
    expect(
      (await readFile(await mirrored.path(), 'utf8')).trimEnd().split('\n'),
    ).toEqual(lines);
    await page.getByRole('searchbox').fill('');
  });

  test('asks again for a ledger that was quarantined', async () => {
    const { page, mirror } = parts();
    const { id } = await biggestParty();
    await page.getByRole('link', { name: 'Status', exact: true }).click();
    const reason = {
      code: 'STREAM_CUT',
      message: 'the export broke off at byte 4096',
    };
    await quarantineExport(mirror.app.warehouse.pool, id, reason);
    const item = page.locator('#attention > li', {
      hasText: '1 ledger quarantined',
    });
    await item.getByText('the export broke off at byte 4096').waitFor();
    expect(await accessibilityFaults(page)).toEqual([]);
    await item.getByRole('button', { name: `Ask again: ${id}` }).click();
    await page.getByRole('heading', { name: WHOLE }).waitFor();
    await expect.poll(() => page.locator('#attention > li').count()).toBe(0);
  });

  test('reads what the process runs with, and no secret', async () => {
    const { page } = parts();
    await page.getByRole('link', { name: 'Settings', exact: true }).click();
    await page.locator('#settings', { hasText: 'SOURCE_PAGE_SIZE' }).waitFor();
    const text = await page.locator('#settings').innerText();
    expect(text).toMatch(/SOURCE_PAGE_SIZE\s+10\s+environment/);
    expect(text).toMatch(/API_TOKEN\s+\*\*\* secret\s+environment/);
    expect(await page.content()).not.toContain(TOKEN);
  });
});

describe('an analyst', () => {
  test('opens a ledger by keyboard alone, sees its charts, and gets back to where the focus was', async () => {
    const { page } = parts();
    const { id } = await biggestParty();
    await page.getByRole('link', { name: 'Data', exact: true }).click();
    await page.locator('#parties tr').nth(1).waitFor();
    await page.reload();
    await page.keyboard.press('Tab');
    expect(await page.evaluate('document.activeElement.textContent')).toContain(
      'Skip to',
    );
    await page.keyboard.press('Enter');
    await page.getByRole('searchbox').focus();
    await page.keyboard.type(id.slice(0, 10));
    await page
      .locator('#parties-told', { hasText: /^1 party shown$/ })
      .waitFor();
    for (let presses = 0; presses < 6; presses += 1) {
      await page.keyboard.press('Tab');
      if ((await page.evaluate('document.activeElement.title')) === id) break;
    }
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').locator('.uplot').nth(1).waitFor();
    expect(await accessibilityFaults(page)).toEqual([]);
    expect(await page.getByRole('dialog').innerText()).toContain(id);
    const entries = page
      .getByRole('table', { name: 'Entries' })
      .locator('tbody tr');
    await expect.poll(() => entries.count()).toBe(50);
    await page.getByRole('button', { name: 'More entries' }).click();
    await expect.poll(() => entries.count()).toBeGreaterThan(50);
    const type = page.getByRole('dialog').getByLabel('Type');
    const wanted = (
      await entries.first().locator('td').first().innerText()
    ).trim();
    await type.selectOption({ label: wanted });
    await expect
      .poll(
        async () =>
          new Set(await entries.locator('td:nth-child(2)').allInnerTexts()),
      )
      .toEqual(new Set([wanted]));
    await page.keyboard.press('Escape');
    await expect
      .poll(() => page.evaluate('document.activeElement.title'))
      .toBe(id);
  });

  test('keeps the focus on a party whose row is drawn again', async () => {
    const { page } = parts();
    const { id } = await biggestParty();
    await page.getByRole('link', { name: 'Data', exact: true }).click();
    await page.getByRole('searchbox').fill(id);
    await page
      .locator('#parties-told', { hasText: /^1 party shown$/ })
      .waitFor();
    const party = page.locator('#parties').getByTitle(id);
    await party.focus();
    const before = await party.elementHandle();
    await page.evaluate(
      "document.getElementById('parties-form').requestSubmit()",
    );
    await expect
      .poll(() => before?.evaluate((node) => node.isConnected))
      .toBe(false);
    expect(await page.evaluate('document.activeElement.title')).toBe(id);
  });

  test('gives the focus back to a party whose row was drawn again behind its ledger', async () => {
    const { page } = parts();
    const { id } = await biggestParty();
    await page.getByRole('link', { name: 'Data', exact: true }).click();
    await page.getByRole('searchbox').fill(id);
    await page
      .locator('#parties-told', { hasText: /^1 party shown$/ })
      .waitFor();
    const party = page.locator('#parties').getByTitle(id);
    const before = await party.elementHandle();
    await party.press('Enter');
    await page.getByRole('dialog').locator('.uplot').first().waitFor();
    await page.evaluate(
      "document.getElementById('parties-form').requestSubmit()",
    );
    await expect
      .poll(() => before?.evaluate((node) => node.isConnected))
      .toBe(false);
    await page.keyboard.press('Escape');
    await expect
      .poll(() => page.evaluate('document.activeElement.title'))
      .toBe(id);
  });

  test('reads times in UTC or in the local zone', async () => {
    const { page, mirror } = parts();
    await using there = await openPage({
      timezoneId: 'Asia/Kolkata',
      colorScheme: 'dark',
    });
    await there.page.goto(mirror.url);
    await there.page.getByLabel('Token').fill(TOKEN);
    await there.page.keyboard.press('Enter');
    const time = there.page.locator('#fresh time').first();
    await time.waitFor();
    const utc = await time.innerText();
    await there.page.getByLabel('Times in').selectOption('local');
    const local = await time.innerText();
    expect(Date.parse(`${local}Z`) - Date.parse(`${utc}Z`)).toBe(
      5.5 * 3_600_000,
    );
    expect(await accessibilityFaults(there.page)).toEqual([]);
    await page.bringToFront();
  });

  test.each([
    ['Status', '#streams article'],
    ['Data', '#parties .id'],
    ['Runs', '.day[data-is=complete]'],
    ['Settings', '#settings tr:not(.usual)'],
  ])(
    'reads the view %s on a phone: nothing is wider than the screen',
    async (name, shown) => {
      const { page } = parts();
      await page.setViewportSize({ width: 360, height: 740 });
      await page.getByRole('link', { name, exact: true }).click();
      await page.locator(shown).first().waitFor();
      expect(
        await page.evaluate('document.documentElement.scrollWidth'),
      ).toBeLessThanOrEqual(360);
      expect(await accessibilityFaults(page)).toEqual([]);
      await page.setViewportSize({ width: 1280, height: 900 });
    },
  );

  test("opens a party's ledger on a phone: nothing in it is wider than the screen", async () => {
    const { page } = parts();
    await page.setViewportSize({ width: 360, height: 740 });
    await page.getByRole('link', { name: 'Data', exact: true }).click();
    await page.locator('#parties .id').first().click();
    await page.getByRole('dialog').locator('.uplot').first().waitFor();
    expect(
      await page.evaluate('document.getElementById("dialog").scrollWidth'),
    ).toBeLessThanOrEqual(360);
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.keyboard.press('Escape');
    await page.setViewportSize({ width: 1280, height: 900 });
  });
});

test('the logout ends the session, and the page asks for the token again', async () => {
  const { page, mirror } = parts();
  await page.getByRole('link', { name: 'Runs', exact: true }).click();
  const cookies = (await page.context().cookies())
    .map(({ name, value }) => `${name}=${value}`)
    .join('; ');
  const answer = async (): Promise<number> =>
    (
      await fetch(`${mirror.url}/mirror/status`, {
        headers: { cookie: cookies },
      })
    ).status;
  expect(await answer()).toBe(200);
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Token').waitFor();
  expect(new URL(page.url()).pathname).toBe('/login');
  expect(await answer()).toBe(401);
});

test('the console met no error and asked no other host', () => {
  const { view } = parts();
  // The login with a wrong token is a redirect, not an error.
  expect(view.problems).toEqual([]);
  expect(view.foreign).toEqual([]);
});
