// Shows how the mirror has grown, and how its nightly runs ended.
import { ask } from '../common/ask.js';
import { amounts, chart } from '../common/charts.js';
import { byId, el, loader, scrolling, show } from '../common/dom.js';
import { bytes, plural } from '../common/format.js';
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

export const loadHistory = loader(
  'nightly-runs',
  () => ask('console/history'),
  (found) => {
    last = found;
    drawHistory();
  },
  (problem) => {
    show(byId('growth'), el('p.notice.bad', 'This could not be loaded.'));
    return problem;
  },
);

export function drawHistory() {
  if (last === undefined) return;
  drawGrowth(byId('growth'), last.growth);
  const target = byId('nightly-runs');
  show(target, ...calendar(last.nightlyRuns));
  // On a narrow screen, scrolls to the latest weeks, which readers look for.
  const weeks = target.querySelector('.scroll');
  weeks.scrollLeft = weeks.scrollWidth;
}

function drawGrowth(target, points) {
  if (points.length === 0) {
    show(target, el('p.none', 'Nothing was published yet.'));
    return;
  }
  const size = points.reduce((sum, point) => sum + BigInt(point.bytes), 0n);
  let rows = 0n;
  const sums = [
    0n,
    ...points.map((point) => {
      rows += BigInt(point.rows);
      return rows;
    }),
  ];
  const [first, ...times] = points.map(({ at }) => Date.parse(at) / 1_000);
  chart(target, {
    label: 'Entries over time',
    said: `${plural(rows, 'ledger entry', 'ledger entries')}, ${bytes(size)} of CSV, published since ${formatTime(points[0].at)}.`,
    times: [first - 1, first, ...times],
    form: 'full',
    series: [amounts('Entries', 'live', sums)],
  });
}

/**
 * Returns a calendar of the last weeks, one column per week. A day shows the worst
 * outcome of its runs.
 */
function calendar(nightlyRuns) {
  const byDay = Map.groupBy(nightlyRuns, ({ at }) => formatTime(at, 'day'));
  const today = formatTime(mirrorNowMs(), 'day');
  const todayMs = Date.parse(today);
  const mondayMs = todayMs - ((new Date(todayMs).getUTCDay() + 6) % 7) * DAY_MS;
  const weeks = Array.from(
    { length: WEEKS },
    (_, index) => mondayMs - (WEEKS - 1 - index) * 7 * DAY_MS,
  );
  const dayOf = (weekMs, index) =>
    new Date(weekMs + index * DAY_MS).toISOString().slice(0, 10);
  const table = el(
    'table.calendar',
    el('caption.hidden', 'Nightly runs by day'),
    el(
      'thead',
      el(
        'tr',
        el('td'),
        weeks.map((weekMs) =>
          el(
            'th',
            { scope: 'col' },
            el('span.hidden', `week of ${dayOf(weekMs, 0)}`),
            month(weekMs),
          ),
        ),
      ),
    ),
    el(
      'tbody',
      WEEKDAYS.map((name, index) =>
        el(
          'tr',
          el('th', { scope: 'row' }, name),
          weeks.map((weekMs) => day(dayOf(weekMs, index), today, byDay)),
        ),
      ),
    ),
  );
  const told =
    nightlyRuns.length === 0
      ? 'No nightly run yet.'
      : `${plural(nightlyRuns.length, 'nightly run')} in recent months. Choose one to read its evidence.`;
  return [scrolling('Calendar of nightly runs', table), el('p.hint', told)];
}

function month(weekMs) {
  const date = new Date(weekMs);
  return date.getUTCDate() <= 7
    ? date.toLocaleString('en', { month: 'short', timeZone: 'UTC' })
    : '';
}

const BADNESS = [
  'failed',
  'suspicious',
  'incomplete',
  'running',
  'queued',
  'cancelled',
  'complete',
];

function day(date, today, byDay) {
  if (date > today) return el('td');
  const runs = byDay.get(date) ?? [];
  const is = runs
    .map((run) => run.verdict ?? run.state)
    .toSorted((a, b) => BADNESS.indexOf(a) - BADNESS.indexOf(b))[0];
  if (is === undefined)
    return el(
      'td',
      el(
        'span.day',
        { title: `${date}: no nightly run` },
        el('span.hidden', `${date}: no nightly run`),
      ),
    );
  const run = runs.find((one) => (one.verdict ?? one.state) === is);
  const said = `${date}: ${is}${runs.length > 1 ? ` (the worst of ${runs.length})` : ''}`;
  return el(
    'td',
    el(
      'button.day',
      {
        type: 'button',
        'data-is': is,
        title: said,
        'aria-label': said,
        click: () => void openRun(run.runId),
      },
      SIGNS[is] ?? '',
    ),
  );
}
