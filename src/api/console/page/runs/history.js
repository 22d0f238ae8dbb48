// How the mirror grew, and how its nights went.
import { ask } from '../common/ask.js';
import { chart } from '../common/charts.js';
import { el, failed, place, show } from '../common/dom.js';
import { bytes, count, plural } from '../common/format.js';
import { formatTime, mirrorNowMs } from '../common/time.js';
import { openRun } from './runs.js';

const WEEKS = 12;
const DAY_MS = 86_400_000;
const SIGNS = {
  complete: '✓',
  incomplete: '…',
  suspicious: '?',
  failed: '×',
  running: '▸',
  queued: '▸',
  cancelled: '–',
};
const WEEKDAYS = ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun'];
let last;

export async function loadHistory() {
  try {
    last = await ask('/console/history');
    drawHistory();
  } catch (error) {
    show(place('growth'), failed(error, loadHistory));
    show(place('nights'), failed(error, loadHistory));
  }
}

export function drawHistory() {
  if (last === undefined) return;
  drawGrowth(last.growth);
  show(place('nights'), ...calendar(last.nights));
  // On a narrow screen the latest weeks are what is looked for.
  const weeks = place('nights').querySelector('.scroll');
  weeks.scrollLeft = weeks.scrollWidth;
}

function drawGrowth(points) {
  const target = place('growth');
  target.classList.remove('loading');
  if (points.length === 0) {
    show(target, el('p', { class: 'none' }, 'Nothing was published yet.'));
    return;
  }
  let rows = 0n;
  const size = points.reduce((sum, point) => sum + BigInt(point.bytes), 0n);
  const sums = points.map((point) => ({
    at: Date.parse(point.at) / 1_000,
    rows: (rows += BigInt(point.rows)),
  }));
  sums.unshift({ at: sums[0].at - 1, rows: 0n });
  chart(target, {
    label: 'Entries over time',
    said: `${plural(rows, 'ledger entry', 'ledger entries')}, ${bytes(size)} of CSV, published since ${formatTime(points[0].at)}.`,
    times: sums.map(({ at }) => at),
    form: 'full',
    series: [
      {
        label: 'Entries',
        tone: 'live',
        values: sums.map((sum) => Number(sum.rows)),
        texts: sums.map((sum) => count(sum.rows)),
      },
    ],
  });
}

/** The last weeks, one column each; a day shows the worst that its nights came to. */
function calendar(nights) {
  const byDay = Map.groupBy(nights, ({ at }) => formatTime(at, 'day'));
  const today = formatTime(mirrorNowMs(), 'day');
  const todayMs = Date.parse(today);
  const mondayMs = todayMs - ((new Date(todayMs).getUTCDay() + 6) % 7) * DAY_MS;
  const weeks = Array.from({ length: WEEKS }, (_, index) => mondayMs - (WEEKS - 1 - index) * 7 * DAY_MS);
  const dayOf = (weekMs, index) => new Date(weekMs + index * DAY_MS).toISOString().slice(0, 10);
  const table = el(
    'table',
    { class: 'calendar' },
    el('caption', { class: 'hidden' }, 'Nightly runs by day'),
    el(
      'thead',
      {},
      el(
        'tr',
        {},
        el('td'),
        weeks.map((weekMs) =>
          el(
            'th',
            { scope: 'col' },
            el('span', { class: 'hidden' }, `week of ${dayOf(weekMs, 0)}`),
            month(weekMs),
          ),
        ),
      ),
    ),
    el(
      'tbody',
      {},
      WEEKDAYS.map((name, index) =>
        el(
          'tr',
          {},
          el('th', { scope: 'row' }, name),
          weeks.map((weekMs) => day(dayOf(weekMs, index), today, byDay)),
        ),
      ),
    ),
  );
  const told =
    nights.length === 0
      ? 'No nightly run yet.'
      : `${plural(nights.length, 'nightly run')} in the last months. Choose one to read its evidence.`;
  return [
    el(
      'div',
      { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Calendar of nightly runs' },
      table,
    ),
    el('p', { class: 'hint' }, told),
  ];
}

function month(weekMs) {
  const date = new Date(weekMs);
  return date.getUTCDate() <= 7 ? date.toLocaleString('en', { month: 'short', timeZone: 'UTC' }) : '';
}

const BADNESS = ['failed', 'suspicious', 'incomplete', 'running', 'queued', 'cancelled', 'complete'];

function day(date, today, byDay) {
  if (date > today) return el('td');
  const runs = byDay.get(date) ?? [];
  const is = runs
    .map((run) => run.verdict ?? run.state)
    .toSorted((a, b) => BADNESS.indexOf(a) - BADNESS.indexOf(b))[0];
  if (is === undefined)
    return el(
      'td',
      {},
      el(
        'span',
        { class: 'day', title: `${date}: no nightly run` },
        el('span', { class: 'hidden' }, `${date}: no nightly run`),
      ),
    );
  const run = runs.find((one) => (one.verdict ?? one.state) === is);
  const said = `${date}: ${is}${runs.length > 1 ? ` (the worst of ${runs.length})` : ''}`;
  return el(
    'td',
    {},
    el(
      'button',
      {
        type: 'button',
        class: 'day',
        'data-is': is,
        title: said,
        'aria-label': said,
        click: () => void openRun(run.runId),
      },
      SIGNS[is] ?? '',
    ),
  );
}
