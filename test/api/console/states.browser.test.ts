/**
 * The console in states that the demo never shows: everything empty, something wrong,
 * nothing answering.
 */
import { readFile } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { afterEach, describe, expect, test } from 'vitest';
import { accessibilityFaults } from './accessibility.ts';
import {
  type Facts,
  quiet,
  run,
  UNDER_WAY,
  wholeFacts,
} from './fixed-console.ts';
import { type FixedView, openFixedView } from './fixed-view.ts';
import type { Upkeep } from '../../../src/api/console/ports.ts';
import { StatusError } from '../../../src/api/kit/status-error.ts';
import { CALM, NO_LAKE } from '../mirror.ts';

let opened: FixedView;

async function open(
  ...args: Parameters<typeof openFixedView>
): Promise<FixedView> {
  opened = await openFixedView(...args);
  return opened;
}

afterEach(async () => {
  await opened[Symbol.asyncDispose]();
});

async function expectShown(id: string, text: string): Promise<void> {
  await opened.view.page.locator(`#${id}`, { hasText: text }).waitFor();
}

async function expectSentence(text: string): Promise<void> {
  await opened.view.page.locator('#sentence', { hasText: text }).waitFor();
}

/** What each view says of a mirror that holds nothing, by the panel's id. */
const EMPTY_VIEWS: Readonly<Record<string, Readonly<Record<string, string>>>> =
  {
    '/': {
      sentence: 'Nothing has been mirrored yet',
      now: 'Nothing is running',
    },
    '/data': { parties: 'No ledger with an entry was exported yet' },
    '/runs': {
      runs: 'No run yet',
      growth: 'Nothing was published yet',
      'nightly-runs': 'No nightly run yet',
      lines: 'No ledger was exported yet',
      quarantine: 'Nothing is in quarantine',
    },
    '/first-night': {
      'night-state': 'Nothing has been mirrored yet',
      'night-asks': 'every page of both lists',
    },
    '/settings': { 'settings-title': 'Settings' },
  };

describe('the status summary', () => {
  test.each(Object.entries(EMPTY_VIEWS))(
    'says of an empty mirror at %s that nothing is there yet',
    async (path, panels) => {
      const { view } = await open({}, path);
      for (const [id, text] of Object.entries(panels))
        await expectShown(id, text);
      await expect
        .poll(() => view.page.locator('.view:not([hidden]) .loading').count())
        .toBe(0);
      expect(await accessibilityFaults(view.page)).toEqual([]);
      expect([...view.problems, ...view.foreign]).toEqual([]);
    },
  );

  test('says as of when the mirror is complete, and asks nothing of a person', async () => {
    const { view } = await open({ status: wholeFacts() });
    await expectSentence('The mirror is complete as of 2026-03-01 02:00 UTC.');
    await expect.poll(() => view.page.title()).toBe('✓ Status · ledger-mirror');
    await expect
      .poll(() => view.page.locator('#attention > li').count())
      .toBe(0);
  });

  test.each([
    ['4', true],
    ['5', false],
  ])(
    'with %s of 100 bytes free on the disk, warns: %s',
    async (diskFreeBytes, isTold) => {
      const upkeep = async (): Promise<Upkeep> => ({
        ...CALM,
        diskFreeBytes,
        diskBytes: '100',
      });
      const { view } = await open({ status: wholeFacts() }, '/', { upkeep });
      await expectShown('numbers', `${diskFreeBytes} B`);
      expect(
        await view.page
          .getByText('the disk of DATA_DIR is nearly full')
          .count(),
      ).toBe(isTold ? 1 : 0);
    },
  );

  test.each([
    ['incomplete', 'Sync now'],
    ['suspicious', 'Read the evidence'],
    ['failed', 'Sync now'],
  ] as const)(
    'gives the button that deals with a list that is %s',
    async (verdict, button) => {
      const status = wholeFacts();
      const streams = status.streams.map((stream, index) =>
        index === 0 ? { ...stream, verdict } : stream,
      );
      const { view } = await open({ status: { ...status, streams } });
      await expectSentence('the list of parties is not proven');
      await expectShown(
        'attention',
        `The last sync of parties ${verdict === 'failed' ? verdict : `was ${verdict}`}`,
      );
      await view.page
        .locator('#attention')
        .getByRole('button', { name: button })
        .waitFor();
      expect(await accessibilityFaults(view.page)).toEqual([]);
    },
  );

  test('shows figures that follow what has changed, as the sentence does', async () => {
    const status = wholeFacts();
    const { view, console: mirror } = await open({ status });
    await expectShown('numbers', '0 of 0');
    const coverage = { ...status.coverage, listed: 9, wanted: 9, covered: 7 };
    mirror.facts.status = {
      ...status,
      coverage,
      ledger: { ...status.ledger, bytes: '2048' },
    };
    await expectSentence('7 of 9 ledgers are covered');
    await expect
      .poll(() => view.page.locator('#numbers').innerText())
      .toMatch(/7 of 9[\s\S]*2\.0 KiB/);
  });

  test('says what each figure counts, where the same thing has two', async () => {
    const status = wholeFacts();
    const streams = status.streams.map((stream) =>
      stream.name === 'parties' ? { ...stream, rows: '152' } : stream,
    );
    const coverage = {
      ...status.coverage,
      listed: 151,
      wanted: 151,
      covered: 151,
    };
    const { view } = await open({ status: { ...status, streams, coverage } });
    await expect
      .poll(() => view.page.locator('#streams h3 .figures').allTextContents())
      .toEqual(['151 and network', '1,234,567 unique', '1,234,567']);
  });

  test('says which exports are at the source, and which wait for their turn', async () => {
    const inFlight = ['aa', 'bb'].map((partyId) => ({
      partyId,
      assetId: null,
      isAtSource: partyId === 'bb',
    }));
    const { view } = await open({ live: { ...quiet(), inFlight } });
    await expect
      .poll(() => view.page.locator('#now .flights li').allInnerTexts())
      .toEqual(['aa waiting for its turn', 'bb at the source']);
  });

  test('says that work waits for a worker', async () => {
    await open({
      live: {
        ...quiet(),
        workers: 0,
        openRuns: [run({ state: 'queued', verdict: null, finishedAt: null })],
      },
    });
    await expect
      .poll(() => opened.view.page.locator('#attention').innerText())
      .toContain('1 run waits and no worker is running');
  });
});

describe('evidence', () => {
  test.each([
    [
      'sync',
      {
        list: 'parties',
        rows: '151',
        newRows: '151',
        requests: 4,
        network: 'stored',
      },
      '151 rows and network listed, 151 of them new, by 4 requests.',
    ],
    [
      'sync',
      { list: 'checkpoints', rows: '2137', newRows: '0', requests: 1 },
      '2,137 rows listed (repeats included), 0 of them new, by 1 request.',
    ],
    [
      'export',
      { rows: '9', bytes: '2048', segments: '1' },
      '9 new entries, 2.0 KiB as CSV, in 1 segment.',
    ],
    [
      'export',
      { rows: '24', replacedRows: '16', bytes: '2048', segments: '1' },
      '8 new entries (24 rows published, 16 replaced), 2.0 KiB as CSV, in 1 segment.',
    ],
    [
      'verify',
      { checked: { segments: 4, objectBytes: '1024' }, problemCount: 0 },
      '4 segments, 1.0 KiB as stored, compared with their sums: everything agrees.',
    ],
  ] as const)(
    'of a run of %s says what each figure counts',
    async (kind, evidence, said) => {
      const { view } = await open({ runs: [run({ kind, evidence })] }, '/runs');
      await view.page.locator('#runs summary').click();
      expect(await view.page.locator('#runs .said').innerText()).toContain(
        said,
      );
    },
  );
});

test('evidence is shown in words, and what has no words is only in the JSON', async () => {
  const evidence = {
    lists: { parties: { verdict: 'complete', asOfHeight: '6480005' } },
    exports: { verdict: 'complete', parties: 151, closedTo: null, late: 0 },
    load: { lake: { version: 1, commitsDecidedBy: 'store' } },
    merged: { ledgers: 2, segments: 4, into: 2, left: 0 },
    source: { requests: { lists: 101, exports: 151 }, waitedMs: 1 },
    inventedKey: 'of no reader',
  };
  const { view } = await open(
    { runs: [run({ kind: 'nightly', evidence })] },
    '/runs',
  );
  await view.page.locator('#runs summary').first().click();
  for (const part of await view.page
    .locator('#runs .evidence > div > details.branch > summary')
    .all())
    await part.click();
  const shown = await view.page.locator('#runs .evidence > div').innerText();
  for (const words of [
    'ledgers requested',
    'complete as of block',
    'commits are accepted by',
    'the object store',
    'merged into',
    'waited for the rate limit',
    'for exports 151',
  ])
    expect(shown).toContain(words);
  expect(shown).not.toMatch(/[a-z][A-Z]|invented|decided by|closed to|, left/);
  await view.page.getByText('All evidence as JSON').click();
  expect(
    await view.page.locator('#runs .evidence pre').last().innerText(),
  ).toContain('"inventedKey": "of no reader"');
});

describe('the quarantine', () => {
  test('is shown fifty at a time, and all of it stays over an update', async () => {
    const quarantined = Array.from({ length: 120 }, (_, at) => ({
      exportId: `${at}`,
      partyId: `${at}`.padStart(64, '0'),
      assetId: null,
      since: '2026-03-01T02:00:00Z',
      attempts: 5,
      reason: { code: 'STREAM_CUT' },
    }));
    const { view, console: mirror } = await open(
      { live: { ...quiet(), quarantined } },
      '/runs',
    );
    const shown = view.page.locator('#quarantine li');
    await expect.poll(() => shown.count()).toBe(50);
    await view.page.locator('#quarantine-more').click();
    await expect.poll(() => shown.count()).toBe(100);
    mirror.facts.live = {
      ...quiet(),
      quarantined: quarantined.slice(10),
      revision: '2',
    };
    await view.page.locator('#quarantine-more').click();
    await expect.poll(() => shown.count()).toBe(110);
    await view.page.locator('#quarantine-more').waitFor({ state: 'hidden' });
  });
});

describe('the connection to the mirror', () => {
  test('shows when it is lost, keeps what was known, and heals', async () => {
    const { view, console: mirror } = await open({ status: wholeFacts() });
    await expectSentence('The mirror is complete');
    await view.page.locator('[data-connection=live]').waitFor();
    await mirror.interrupt();
    await view.page
      .locator('#connection', {
        hasText: 'Connection lost. What you see is as of',
      })
      .waitFor();
    expect(await accessibilityFaults(view.page)).toEqual([]);
    await expectSentence('The mirror is complete');
    await mirror.resume();
    await view.page.locator('#connection', { hasText: /^Live$/ }).waitFor();
    await view.page.locator('[data-connection=live]').waitFor();
  });
});

describe('what the source, or anybody, wrote', () => {
  const evil =
    '<img src="/evil" onerror="document.title=1"><script>document.title=2</script>';
  const facts: Partial<Facts> = {
    status: {
      ...wholeFacts(),
      sourceUrl: evil,
      ledger: { ...wholeFacts().ledger, quarantined: '1' },
      coverage: { ...wholeFacts().coverage, quarantined: 1 },
    },
    settings: [
      { name: evil, value: evil, isSecret: false, origin: evil, help: evil },
    ],
    runs: [
      run({
        subject: evil,
        evidence: {
          [evil]: [evil, { [evil]: evil }],
          error: { code: evil, message: evil },
        },
      }),
    ],
    live: {
      ...quiet(),
      openRuns: [
        run({
          subject: evil,
          state: 'running',
          verdict: null,
          finishedAt: null,
        }),
      ],
      inFlight: [{ partyId: evil, assetId: evil, isAtSource: true }],
      quarantined: [
        {
          exportId: '1',
          partyId: evil,
          assetId: evil,
          since: '2026-03-01T02:00:00Z',
          attempts: 5,
          reason: { code: evil, message: evil },
        },
      ],
    },
  };

  test.each([
    ['/', '#attention'],
    ['/runs', '#quarantine'],
    ['/settings', '#settings'],
  ])('is text wherever it is shown at %s', async (path, shownIn) => {
    const { view } = await open(facts, path);
    await view.page.locator(shownIn, { hasText: evil }).waitFor();
    if (path === '/runs') {
      await view.page.locator('#runs summary').click();
      await view.page
        .locator('#runs pre', { hasText: 'onerror' })
        .waitFor({ state: 'attached' });
    }
    expect(
      await view.page.locator('main img, main script, dialog img').count(),
    ).toBe(0);
    expect(await view.page.title()).toContain('ledger-mirror');
    expect([...view.weights.keys()]).not.toContain('/evil');
    expect([...view.problems, ...view.foreign]).toEqual([]);
  });
});

describe('a result', () => {
  test('separates the thousands of whole numbers, exactly, and of no id and no year', async () => {
    const rows = [
      {
        party_id: 'ab'.repeat(32),
        year: 2026,
        at_block: 51234567,
        code: '00123456',
        quantity: '170141183460469231731687303715884105727',
        change: '-1234567',
        median: '1234.5678',
      },
      {
        party_id: 'cd'.repeat(32),
        year: 2025,
        at_block: 1,
        code: '1234567',
        quantity: '5',
        change: '0',
        median: '0.1',
      },
    ];
    const lake = {
      ...NO_LAKE,
      ask: async () => ({ rows, isCut: false, tookMs: 1 }),
    };
    const { view } = await open({ status: wholeFacts() }, '/data', { lake });
    await view.page.getByRole('button', { name: 'Run', exact: true }).click();
    const cells = view.page
      .locator('#query-result tbody tr')
      .first()
      .locator('td');
    await expect
      .poll(() => cells.allInnerTexts())
      .toEqual([
        'abababab…abab',
        '2026',
        '51234567',
        '00123456',
        '170,141,183,460,469,231,731,687,303,715,884,105,727',
        '-1,234,567',
        '1,234.5678',
      ]);
  });

  test.each([
    ['your own SQL', /^query-\d{4}-\d\d-\d\d\.csv$/],
    ['top-parties', /^top-parties-\d{4}-\d\d-\d\d\.csv$/],
  ])(
    'of %s is saved under a name that says what it is and of which day',
    async (label, name) => {
      const lake = {
        ...NO_LAKE,
        questions: [{ name: 'top-parties', title: 'who', parameters: [] }],
        file: async () => Readable.from(['party_id\n']),
      };
      const { view } = await open({ status: wholeFacts() }, '/data', { lake });
      await view.page.getByLabel('Question').selectOption({ label });
      const [saved] = await Promise.all([
        view.page.waitForEvent('download'),
        view.page.getByRole('button', { name: 'CSV' }).click(),
      ]);
      expect(saved.suggestedFilename()).toMatch(name);
    },
  );

  test('that fails shows the engine’s message with the mark below the wrong position', async () => {
    const said =
      'SQL: Catalog Error\n\nLINE 1: select * from entries\n                      ^';
    const ask = async (): Promise<never> => {
      throw new StatusError('invalidArgument', said);
    };
    const { view } = await open({ status: wholeFacts() }, '/data', {
      lake: { ...NO_LAKE, ask },
    });
    await view.page.getByRole('button', { name: 'Run', exact: true }).click();
    await expect
      .poll(() => view.page.locator('#query-result .notice').textContent())
      .toBe(said);
  });
});

describe('a result by day and kind', () => {
  test('is drawn with a bar for each day, stacked by kind, in the form that is chosen, and can be saved', async () => {
    const rows = ['2026-02-27', '2026-02-28', '2026-03-01'].flatMap((day, n) =>
      ['aa', 'bb'].flatMap((asset) =>
        ['DEPOSIT', 'WITHDRAW', 'BOND'].map((type) => ({
          day,
          asset_id: asset.repeat(32),
          transfer_type: type,
          entries: (n + 1) * (asset === 'aa' ? 10 : 700),
        })),
      ),
    );
    const lake = {
      ...NO_LAKE,
      ask: async () => ({ rows, isCut: false, tookMs: 1 }),
    };
    const { view } = await open({ status: wholeFacts() }, '/data', { lake });
    await view.page.getByRole('button', { name: 'Run', exact: true }).click();
    const { page } = view;
    await page.locator('#query-result .figure svg').waitFor();
    const legend = page.locator('#query-result .figure-legend');
    expect((await legend.innerText()).replaceAll(/\s+/g, ' ')).toMatch(
      /aaaaaaaa…aaaa: 90 at the end bbbbbbbb…bbbb: 6.300 at the end/,
    );
    // Three days, two assets.
    const bars = page.locator('#query-result .figure rect');
    expect(await bars.count()).toBe(6);
    expect(await bars.first().locator('title').textContent()).toBe(
      '2026-02-27 · aaaaaaaa…aaaa: 30',
    );

    expect(await accessibilityFaults(page)).toEqual([]);
    await page.setViewportSize({ width: 390, height: 844 });
    const sideways =
      'document.documentElement.scrollWidth - document.documentElement.clientWidth';
    await expect.poll(() => page.evaluate(sideways)).toBe(0);
    await expect
      .poll(
        async () => (await page.locator('.figure svg').boundingBox())?.width,
      )
      .toBeLessThanOrEqual(390);
    expect(await accessibilityFaults(page)).toEqual([]);

    await page.getByLabel('Split by').selectOption('nothing');
    await expect.poll(() => bars.count()).toBe(3);
    await page.getByLabel('Drawn as').selectOption('line');
    const line = page.locator(
      '#query-result .figure polyline[stroke-width="2"]',
    );
    await expect.poll(() => line.count()).toBe(1);
    for (const [button, start] of [
      ['SVG', /^<svg (?:(?!xmlns)[^>])*xmlns="[^"]+"(?:(?!xmlns)[^>])*>/],
      ['PNG', /^\u0089PNG/],
    ] as const) {
      const [saved] = await Promise.all([
        page.waitForEvent('download'),
        page.getByRole('button', { name: button, exact: true }).click(),
      ]);
      expect(saved.suggestedFilename()).toMatch(
        new RegExp(`^chart-.*\\.${button.toLowerCase()}$`),
      );
      const content = await readFile(await saved.path(), 'latin1');
      expect(content).toMatch(start);
      expect(content).not.toContain('var(--');
    }
    await page.getByLabel('Split by').selectOption('transfer_type');
    const [split] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'SVG', exact: true }).click(),
    ]);
    // Without its page, the picture has to say what it shows.
    const picture = await readFile(await split.path(), 'utf8');
    expect(picture).toContain('>entries by transfer_type, by day</text>');
    for (const type of ['DEPOSIT', 'WITHDRAW', 'BOND'])
      expect(picture).toContain(`>${type}: `);
    expect([...view.problems, ...view.foreign]).toEqual([]);
  });

  test('is a bar for each name if all rows share the month and the asset', async () => {
    const rows = ['m1', 'm2', 'm3'].map((market, n) => ({
      month: '2026-10',
      asset_id: 'aa'.repeat(32),
      market,
      paid: String(10 * (n + 1)),
    }));
    const lake = {
      ...NO_LAKE,
      ask: async () => ({ rows, isCut: false, tookMs: 1 }),
    };
    const { view } = await open({ status: wholeFacts() }, '/data', { lake });
    const { page } = view;
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    const bars = page.locator('#query-result .figure rect title');
    await expect
      .poll(() => bars.allTextContents())
      .toEqual(['m1 · paid: 10', 'm2 · paid: 20', 'm3 · paid: 30']);
    expect([...view.problems, ...view.foreign]).toEqual([]);
  });

  test('is a chart for each asset if it holds amounts, never their sum, or one asset that is chosen', async () => {
    const [one, other] = ['aa', 'bb'].map((asset) => asset.repeat(32));
    let rows: readonly Record<string, string | null>[] = [
      { month: '2026-01', asset_id: one ?? '', holders: '3', held: '4' },
      { month: '2026-02', asset_id: one ?? '', holders: '3', held: '5' },
      { month: '2026-02', asset_id: other ?? '', holders: '2', held: '9000' },
    ];
    const lake = {
      ...NO_LAKE,
      ask: async () => ({ rows, isCut: false, tookMs: 1 }),
    };
    const { view } = await open({ status: wholeFacts() }, '/data', { lake });
    const { page } = view;
    const runs = page.getByRole('button', { name: 'Run', exact: true });
    await runs.click();
    const bars = page.locator('#query-result .figure rect title');
    const texts = page.locator('#query-result .figure text');
    await expect
      .poll(() => bars.allTextContents())
      .toEqual([
        '2026-01 · held: 4',
        '2026-02 · held: 5',
        '2026-02 · held: 9,000',
      ]);
    expect(await texts.allTextContents()).toEqual(
      expect.arrayContaining(['aaaaaaaa…aaaa', 'bbbbbbbb…bbbb']),
    );
    // Each asset has its own scale, which ends at the next tick: 6 here, 10,000 there.
    const heights = await page.evaluate<readonly number[]>(
      `[...document.querySelectorAll('#query-result .figure rect')].map((bar) => bar.height.baseVal.value)`,
    );
    const plot = 218;
    expect(heights[1]).toBeCloseTo((plot * 5) / 6);
    expect(heights[2]).toBeCloseTo((plot * 9_000) / 10_000);
    expect(await accessibilityFaults(page)).toEqual([]);

    await page.getByLabel('Figures').selectOption('holders');
    await expect.poll(() => bars.count()).toBe(3);
    await page
      .getByLabel('Asset', { exact: true })
      .selectOption('bbbbbbbb…bbbb');
    await expect
      .poll(() => bars.allTextContents())
      .toEqual(['2026-02 · holders: 2']);

    rows = rows.map(({ asset_id: asset, held }) => ({
      asset_id: asset ?? '',
      held: held ?? '',
    }));
    await runs.click();
    await page
      .locator('#query-result', {
        hasText: 'No chart: each asset has its own unit',
      })
      .waitFor();
    expect([...view.problems, ...view.foreign]).toEqual([]);
  });

  test('names every part in the legend of several charts, and draws nothing of an asset without figures', async () => {
    const [one, other, bare] = ['aa', 'bb', 'cc'].map((asset) =>
      asset.repeat(32),
    );
    const kinds = ['A', 'B', 'C', 'D', 'E', 'F', null];
    const rows = [one, other].flatMap((asset) =>
      kinds.map((kind, index) => ({
        month: `2026-0${(index % 2) + 1}`,
        asset_id: asset ?? '',
        kind,
        held: `${index + 1}`,
      })),
    );
    const unknown = { month: '2026-01', asset_id: bare ?? '', kind: 'A' };
    const lake = {
      ...NO_LAKE,
      ask: async () => ({
        rows: [...rows, { ...unknown, held: null }],
        isCut: false,
        tookMs: 1,
      }),
    };
    const { view } = await open({ status: wholeFacts() }, '/data', { lake });
    const { page } = view;
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    const legend = page.locator('#query-result .figure-legend li');
    await expect
      .poll(async () =>
        (await legend.allTextContents()).map((text) => text.trim()).toSorted(),
      )
      .toEqual(['A', 'B', 'C', 'D', 'E', 'F', '–']);

    await page
      .getByLabel('Asset', { exact: true })
      .selectOption('cccccccc…cccc');
    await expect
      .poll(() => page.locator('#query-result .figure rect').count())
      .toBe(0);
    expect([...view.problems, ...view.foreign]).toEqual([]);
  });

  test('has bars by month and by name, with the months between, and no split by a column without values', async () => {
    let rows: readonly Record<string, string | number | null>[] = [
      { month: '2026-01', n: 3, note: null },
      { month: '2026-03', n: 4, note: null },
    ];
    const lake = {
      ...NO_LAKE,
      ask: async () => ({ rows, isCut: false, tookMs: 1 }),
    };
    const { view } = await open({ status: wholeFacts() }, '/data', { lake });
    const runs = view.page.getByRole('button', { name: 'Run', exact: true });
    await runs.click();
    const texts = view.page.locator('#query-result .figure text');
    await expect
      .poll(() => texts.allTextContents())
      .toEqual(expect.arrayContaining(['2026-01', '2026-02', '2026-03']));
    expect(await view.page.getByLabel('Split by').count()).toBe(0);
    rows = [
      { kind: 'DEPOSIT', n: 3 },
      { kind: 'BOND', n: 4 },
    ];
    await runs.click();
    await expect
      .poll(() => texts.allTextContents())
      .toEqual(expect.arrayContaining(['DEPOSIT', 'BOND']));
    // Names have no end that a last value could stand at.
    const legend = view.page.locator('#query-result .figure-legend');
    expect((await legend.innerText()).trim()).toBe('n');
    expect([...view.problems, ...view.foreign]).toEqual([]);
  });
});

describe('a run that is cancelled', () => {
  test('is cancelled only after a second press, and the keyboard can keep it', async () => {
    const { view } = await open({
      live: {
        ...quiet(),
        openRuns: [run(UNDER_WAY)],
      },
    });
    const { page } = view;
    const cancelled: string[] = [];
    await page.route('**/mirror/runs/*', (route) => {
      cancelled.push(route.request().method());
      return route.fulfill({ status: 202, json: {} });
    });
    const first = page.getByRole('button', { name: /^Cancel: sync/ });
    await first.focus();
    await page.keyboard.press('Enter');
    await page.getByText('It stops at its next safe point').waitFor();
    expect(await accessibilityFaults(page)).toEqual([]);
    // The focus is on what changes nothing.
    await page.keyboard.press('Enter');
    await first.waitFor();
    expect(cancelled).toEqual([]);
    await first.click();
    await page.getByRole('button', { name: 'Yes, cancel it' }).click();
    await page.locator('.cancel', { hasText: 'Cancelling' }).waitFor();
    expect(cancelled).toEqual(['DELETE']);
  });
});
