/**
 * The chart of every ready question, drawn in a real browser from the answers of a real
 * mirror of a sandbox network.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { LakeAnswer } from '../../../src/api/console/lake-queries.ts';
import { unitColumns } from '../../../src/lake/query/chart-units.ts';
import { READY_QUESTIONS } from '../../../src/lake/query/questions.ts';
import { openHome } from '../../cli/mirror-home.ts';
import { openFreshDatabase } from '../../support/database.ts';
import { startSandbox } from '../../support/sandbox.ts';
import { NO_LAKE } from '../mirror.ts';
import { type ConsolePage, openPage } from './browser.ts';
import { openFixedConsole, quiet, wholeFacts } from './fixed-console.ts';

const HISTORY_MS = 100 * 86_400_000;
const DESK = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };
/** The questions that draw nothing, with the sentence that says why. */
const WITHOUT_CHART = new Map([
  ['cadence', 'No chart: the result has one row'],
  ['balances', 'No chart: balance has several possible values in some rows'],
]);

type Rows = LakeAnswer['rows'];

const opened = new AsyncDisposableStack();
let view: ConsolePage | undefined;

/** Answers each question from a mirror of a network of several months and assets. */
async function answerAll(): Promise<ReadonlyMap<string, Rows>> {
  await using sandbox = await startSandbox({
    parties: 12,
    entriesMean: 120,
    historyMs: HISTORY_MS,
    rateLimit: 'none',
  });
  await using database = await openFreshDatabase();
  await using home = await openHome({
    SOURCE_URL: sandbox.url,
    DATABASE_URL: database.url,
  });
  const night = await home.run(['nightly']);
  if (night.code !== 0) throw new Error(night.stderr);
  const rowsOf = async (args: readonly string[]): Promise<Rows> => {
    const { document } = await home.json(['query', ...args]);
    return (document as unknown as { readonly rows: Rows }).rows;
  };
  const [busiest] = await rowsOf([
    'select party_id, cast(max(vega_time) as varchar) as at from entries group by 1 order by count(*) desc',
  ]);
  const samples: Readonly<Record<string, string>> = {
    party: String(busiest?.['party_id']),
    at: String(busiest?.['at']),
  };
  const found = new Map<string, Rows>();
  for (const { name, required = {} } of READY_QUESTIONS) {
    const options = Object.keys(required).flatMap((option) => [
      `--${option}`,
      samples[option] ?? '',
    ]);
    found.set(name, await rowsOf([name, ...options]));
  }
  return found;
}

beforeAll(async () => {
  const answers = await answerAll();
  const lake = {
    ...NO_LAKE,
    questions: READY_QUESTIONS.map(({ name, title }) => ({
      name,
      title,
      parameters: [],
    })),
    ask: async (asked: object) => {
      const name = 'question' in asked ? String(asked.question) : '';
      const rows = answers.get(name) ?? [];
      const columns = Object.keys(rows[0] ?? {});
      const units = Object.fromEntries(
        columns.map((figure) => [figure, unitColumns(columns, figure)]),
      );
      return { rows, units, isCut: false, tookMs: secondsOf(name) * 1_000 };
    },
  };
  const facts = { live: quiet(), status: wholeFacts(), runs: [], settings: [] };
  const console = opened.use(await openFixedConsole(facts, 500, { lake }));
  view = opened.use(await openPage({ viewport: DESK }));
  await view.page.goto(new URL('/data', console.url).href);
  await view.page
    .locator('#query-question option')
    .nth(1)
    .waitFor({ state: 'attached' });
});
afterAll(() => opened.disposeAsync());

/**
 * Tells the answers of two questions apart: the page shows how long each took, in whole
 * seconds from ten on.
 */
function secondsOf(name: string): number {
  return 10 + READY_QUESTIONS.findIndex((question) => question.name === name);
}

test.each(READY_QUESTIONS.map(({ name }) => name))(
  'the chart of %s has every label whole, inside the picture and apart from the others',
  async (name) => {
    if (view === undefined) throw new Error('not open');
    const { page, problems } = view;
    for (const size of [DESK, PHONE]) {
      await page.setViewportSize(size);
      await page.locator('#query-question').selectOption(name);
      await page.getByRole('button', { name: 'Run', exact: true }).click();
      await page
        .locator('#query-result .hint', {
          hasText: new RegExp(`, ${secondsOf(name)} s$`),
        })
        .waitFor();
      const why = WITHOUT_CHART.get(name);
      const isDrawn = why === undefined;
      if (!isDrawn)
        await page.locator('#query-result p.hint', { hasText: why }).waitFor();
      if (isDrawn) await page.locator('#query-result .figure svg').waitFor();
      // The place of a chart is there before its picture is.
      expect(await page.locator('#query-result .figure').count()).toBe(
        isDrawn ? 1 : 0,
      );
      expect({ size, faults: await page.evaluate(FAULTS) }).toEqual({
        size,
        faults: [],
      });
    }
    expect(problems).toEqual([]);
  },
);

test('labels that overlap and labels that leave the picture are found', async () => {
  if (view === undefined) throw new Error('not open');
  const { page } = view;
  await page.locator('#query-question').selectOption('holders');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.locator('#query-result .figure svg').waitFor();
  expect(await page.evaluate(FAULTS)).toEqual([]);
  await page.evaluate(`(() => {
    const [first, second, third] = document.querySelectorAll('.figure svg text[text-anchor=end]');
    second.setAttribute('y', first.getAttribute('y'));
    third.setAttribute('x', '-100');
  })()`);
  expect(await page.evaluate(FAULTS)).toEqual([
    expect.stringMatching(/ overlap$/),
    expect.stringMatching(/ leaves the picture$/),
  ]);
});

/** Labels that overlap or leave the picture, and attributes that are not numbers. */
const FAULTS = `(() => {
  const faults = [];
  for (const picture of document.querySelectorAll('.figure svg')) {
    const frame = picture.getBoundingClientRect();
    for (const node of picture.querySelectorAll('*'))
      for (const { name, value } of node.attributes)
        if (/NaN|undefined|Infinity/.test(value))
          faults.push(node.tagName + ' ' + name + ': ' + value);
    const labels = [...picture.querySelectorAll('text')].map((node) => ({
      text: node.textContent,
      box: node.getBoundingClientRect(),
    }));
    if (labels.length < 2) faults.push('the picture has no labels');
    for (const [index, { text, box }] of labels.entries()) {
      if (text.trim() === '') faults.push('an empty label');
      if (box.left < frame.left - 1 || box.right > frame.right + 1 ||
          box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        faults.push(text + ' leaves the picture');
      for (const other of labels.slice(index + 1)) {
        const wide = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
        const high = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top);
        if (wide > 1 && high > 2) faults.push(text + ' and ' + other.text + ' overlap');
      }
    }
  }
  return faults;
})()`;
