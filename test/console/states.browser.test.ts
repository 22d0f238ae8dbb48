/** The console in states that the demo never shows: everything empty, something wrong, nothing answering. */
import { afterEach, describe, expect, it } from 'vitest';
import { accessibilityFaults } from './accessibility.ts';
import { type ConsolePage, openPage } from './browser.ts';
import {
  type Facts,
  type FixedConsole,
  openFixedConsole,
  PARTY,
  quiet,
  wholeFacts,
  WHOLE_LISTS,
} from './fixed-console.ts';
import { EMPTY_FACTS } from '../api/mirror.ts';

const EVERY_MS = 50;
let opened: { readonly console: FixedConsole; readonly view: ConsolePage };

async function open(facts: Partial<Facts>): Promise<typeof opened> {
  const all = { live: quiet(), status: EMPTY_FACTS, runs: [], settings: [], ...facts };
  const fixed = await openFixedConsole(all, EVERY_MS);
  const view = await openPage();
  opened = { console: fixed, view };
  await view.page.goto(fixed.url);
  return opened;
}

afterEach(async () => {
  await opened.view[Symbol.asyncDispose]();
  await opened.console[Symbol.asyncDispose]();
});

async function expectShown(id: string, text: string): Promise<void> {
  await opened.view.page.locator(`#${id}`, { hasText: text }).waitFor();
}

async function expectSentence(text: string): Promise<void> {
  await opened.view.page.locator('#sentence', { hasText: text }).waitFor();
}

describe('the glance', () => {
  it('says of an empty mirror that nothing is there yet, and every panel says so too', async () => {
    const { view } = await open({});
    await expectSentence('Nothing has been mirrored yet');
    await view.page.locator('#settings:not(.loading)').waitFor({ state: 'attached' });
    await expectShown('lines', 'No ledger was exported yet');
    await expectShown('growth', 'Nothing was published yet');
    await expectShown('nights', 'No night has run yet');
    await expectShown('runs', 'No run yet');
    await expectShown('aside', 'Nothing is quarantined');
    await expect.poll(() => view.page.locator('.loading').count()).toBe(0);
    expect(await accessibilityFaults(view.page)).toEqual([]);
    expect([...view.problems, ...view.foreign]).toEqual([]);
  });

  it('says of a whole mirror as of when, and asks nothing of a person', async () => {
    const { view } = await open({ status: wholeFacts(), live: { ...quiet(), stretches: WHOLE_LISTS } });
    await expectSentence('The mirror is whole as of 2026-03-01 02:00 UTC.');
    await expect.poll(() => view.page.title()).toBe('✓ ledger-mirror');
    await expect.poll(() => view.page.locator('#attention > li').count()).toBe(0);
  });

  it.each([
    ['incomplete', 'Walk again now'],
    ['suspicious', 'Read the evidence'],
    ['failed', 'Walk again now'],
  ] as const)('gives the button that deals with a list that is %s', async (verdict, button) => {
    const status = wholeFacts();
    const streams = status.streams.map((stream, index) => (index === 0 ? { ...stream, verdict } : stream));
    const { view } = await open({ status: { ...status, streams } });
    await expectSentence('the list of parties is not complete');
    await expectShown('attention', `the list of parties: ${verdict}`);
    await view.page.locator('#attention').getByRole('button', { name: button }).waitFor();
    expect(await accessibilityFaults(view.page)).toEqual([]);
  });

  it('says that work waits for a worker', async () => {
    await open({
      live: { ...quiet(), workers: 0, openRuns: [run({ state: 'queued', verdict: null, finishedAt: null })] },
    });
    await expect
      .poll(() => opened.view.page.locator('#attention').innerText())
      .toContain('1 run waits and no worker is running');
  });
});

function run(changes: Partial<Facts['runs'][number]>): Facts['runs'][number] {
  return {
    runId: '01a1fc0b-e1b9-71c1-ace8-91e8d46a6831',
    parentRunId: null,
    kind: 'walk',
    subject: 'parties',
    state: 'done',
    verdict: 'complete',
    evidence: {},
    queuedAt: '2026-03-01T02:00:00Z',
    startedAt: '2026-03-01T02:00:00Z',
    finishedAt: '2026-03-01T02:01:00Z',
    attempts: 1,
    ...changes,
  };
}

describe('a walk', () => {
  it('closes in on the seam from both ends, without the page moving', async () => {
    const stretches = (up: number, down: number): Facts['live']['stretches'] => [
      { list: 'checkpoints', lo: '1', hi: `${up}`, hasTail: true, hasHead: false },
      { list: 'checkpoints', lo: `${down}`, hi: '1000', hasTail: false, hasHead: true },
    ];
    const walk = (rows: string): Facts['live']['walks'] => [
      {
        list: 'checkpoints',
        kind: 'walk',
        isOpen: true,
        runId: PARTY,
        startedAt: '2026-03-01T05:59:00Z',
        finishedAt: null,
        ways: { up: { rows, newRows: rows, pages: 1 }, down: { rows, newRows: rows, pages: 1 } },
      },
    ];
    const { view, console: mirror } = await open({
      live: { ...quiet(), stretches: stretches(100, 900), walks: walk('9') },
    });
    const widthOf = async (name: string): Promise<number> =>
      (await view.page.locator(`.seam .${name}`).last().boundingBox())?.width ?? 0;
    await view.page.locator('.seam .up').waitFor();
    // What loads above it may still move it.
    await expect.poll(() => view.page.locator('.loading').count()).toBe(0);
    const [hole, top] = [await widthOf('hole'), await view.page.locator('#exports-title').boundingBox()];
    mirror.facts.live = {
      ...quiet(),
      revision: '0',
      stretches: stretches(450, 560),
      walks: walk('123456789'),
    };
    await view.page.locator('.ways', { hasText: '123\u202F456\u202F789 rows' }).waitFor();
    await expect.poll(() => widthOf('hole')).toBeLessThan(hole / 2);
    expect((await view.page.locator('#exports-title').boundingBox())?.y).toBe(top?.y);
    mirror.facts.live = { ...mirror.facts.live, stretches: WHOLE_LISTS };
    await view.page.locator('.ways', { hasText: 'both ends have met' }).waitFor();
  });
});

describe('what was quarantined', () => {
  it('is shown fifty at a time, and all of it stays over an update', async () => {
    const quarantined = Array.from({ length: 120 }, (_, at) => ({
      exportId: `${at}`,
      partyId: `${at}`.padStart(64, '0'),
      assetId: null,
      since: '2026-03-01T02:00:00Z',
      attempts: 5,
      reason: { code: 'STREAM_CUT' },
    }));
    const { view, console: mirror } = await open({ live: { ...quiet(), quarantined } });
    const units = view.page.locator('#aside li');
    await expect.poll(() => units.count()).toBe(50);
    await view.page.locator('#aside-more').click();
    await expect.poll(() => units.count()).toBe(100);
    mirror.facts.live = { ...quiet(), quarantined: quarantined.slice(10), revision: '2' };
    await view.page.locator('#aside-more').click();
    await expect.poll(() => units.count()).toBe(110);
    await view.page.locator('#aside-more').waitFor({ state: 'hidden' });
  });
});

describe('the line to the mirror', () => {
  it('shows when it is lost, keeps what was known, and heals', async () => {
    const { view, console: mirror } = await open({ status: wholeFacts() });
    await expectSentence('The mirror is whole');
    await view.page.locator('[data-connection=live]').waitFor();
    await mirror.interrupt();
    await view.page.locator('#connection', { hasText: 'Connection lost. What you see is as of' }).waitFor();
    expect(await accessibilityFaults(view.page)).toEqual([]);
    await expectSentence('The mirror is whole');
    await mirror.resume();
    await view.page.locator('#connection', { hasText: /^Live$/ }).waitFor();
    await view.page.locator('[data-connection=live]').waitFor();
  });
});

describe('what the source, or anybody, wrote', () => {
  it('is text wherever it is shown', async () => {
    const evil = '<img src="/evil" onerror="document.title=1"><script>document.title=2</script>';
    const { view } = await open({
      status: { ...wholeFacts(), sourceUrl: evil, ledger: { ...wholeFacts().ledger, quarantined: '1' } },
      settings: [{ name: evil, value: evil, isSecret: false, origin: evil, help: evil }],
      runs: [
        run({
          subject: evil,
          evidence: { [evil]: [evil, { [evil]: evil }], error: { code: evil, message: evil } },
        }),
      ],
      live: {
        ...quiet(),
        openRuns: [run({ subject: evil, state: 'running', verdict: null, finishedAt: null })],
        inFlight: [{ partyId: evil, assetId: evil }],
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
    });
    await view.page.locator('#settings:not(.loading)').waitFor({ state: 'attached' });
    await view.page.locator('#aside', { hasText: evil }).waitFor();
    await view.page.locator('#runs summary').click();
    await view.page.locator('#runs pre', { hasText: 'onerror' }).waitFor({ state: 'attached' });
    expect(await view.page.locator('main img, main script, dialog img').count()).toBe(0);
    expect(await view.page.title()).toContain('ledger-mirror');
    expect([...view.weights.keys()]).not.toContain('/evil');
    expect([...view.problems, ...view.foreign]).toEqual([]);
  });
});
