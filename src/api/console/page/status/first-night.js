// The page of the first nightly run: the settings, what the run will request from the
// source, a look at the source that estimates it, a button that starts the run, and its
// progress.
import { ask, post } from '../common/ask.js';
import {
  action,
  announce,
  byId,
  el,
  fill,
  redraw,
  setText,
  show,
} from '../common/dom.js';
import { bytes, count, duration, plural } from '../common/format.js';
import { nightAsks, readSettings, startRun } from '../common/start.js';
import { formatTime } from '../common/time.js';
import { showNow } from './now.js';

/** The look waits for four pages from the source, and each request may be retried. */
const LOOK_TIMEOUT_MS = 60_000;

let lastSnapshot;

/**
 * Returns the stage of the first night: `empty` before it, `running`, or `over` once a
 * nightly run has ended. A mirror whose lists were read without a nightly run is `known`.
 */
function stageOf({ status, live }) {
  if (live.some(({ kind }) => kind === 'nightly')) return 'running';
  if (status.nights.last !== null) return 'over';
  const isEmpty = status.streams.every(({ verdict }) => verdict === null);
  return isEmpty ? 'empty' : 'known';
}

/** Shows a link to the first night on the status page, until that night is over. */
export function showFirstNightLink(snapshot) {
  const stage = stageOf(snapshot);
  const isFirst = snapshot.status.nights.last === null;
  byId('first-night').hidden =
    !(stage === 'empty' && snapshot.live.length === 0) &&
    !(stage === 'running' && isFirst);
  setText(
    byId('first-night-told'),
    stage === 'running'
      ? 'The first night is running.'
      : 'It reads the lists and every ledger.',
  );
  setText(
    byId('first-night').querySelector('a'),
    stage === 'running'
      ? 'See how it is going'
      : 'See what it will request, and start it',
  );
}

/** Updates the page of the first night with a snapshot. */
export function showFirstNight(snapshot) {
  const before = lastSnapshot === undefined ? undefined : stageOf(lastSnapshot);
  lastSnapshot = snapshot;
  const stage = stageOf(snapshot);
  const { last } = snapshot.status.nights;
  setText(byId('night-state'), sentenceOf(stage, snapshot));
  byId('night-plan').hidden = stage === 'running' || stage === 'over';
  byId('night-run').hidden = stage !== 'running';
  if (stage === 'running') showNow(snapshot, byId('night-now'));
  const next = byId('night-next');
  next.hidden = stage !== 'over';
  redraw(next, `${stage} ${last?.runId}`, () =>
    stage === 'over' ? nextSteps(last) : [],
  );
  if (before !== undefined && before !== stage)
    announce(sentenceOf(stage, snapshot));
}

function sentenceOf(stage, { status, nextNightlyRun }) {
  const { last } = status.nights;
  switch (stage) {
    case 'running':
      return last === null
        ? 'The first night is running. You can leave this page: what is saved stays, even if the run is cancelled.'
        : 'A nightly run is in progress; this mirror has had its first night.';
    case 'over':
      return `This mirror has had its first night. The last nightly run ended ${last.verdict} at ${formatTime(last.finishedAt, 'full')}.`;
    case 'known':
      return 'The lists have been read, but no nightly run has ended yet.';
    default:
      return nextNightlyRun === null
        ? 'Nothing has been mirrored yet, and no nightly run is scheduled.'
        : `Nothing has been mirrored yet. The first night starts by itself at ${formatTime(nextNightlyRun, 'full')}, or now if you start it below.`;
  }
}

function nextSteps({ runId }) {
  return [
    el('a.button', { href: `runs#run/${runId}` }, 'Read its evidence'),
    el('a.button', { href: 'data' }, 'Query the data'),
    el('a.button', { href: './' }, 'Status'),
  ];
}

/** Loads the settings, and what the night will request. */
export async function loadFirstNight() {
  await Promise.all([
    fill(byId('night-set'), readSettings, (values, target) =>
      show(target, facts(values)),
    ),
    fill(
      byId('night-asks'),
      () => ask('console/preview'),
      (preview, target) => {
        show(target, el('p', nightAsks(preview)));
        offer(preview);
      },
    ),
  ]);
}

function facts(values) {
  const storeUrl = values.get('OBJECT_STORE_URL') ?? null;
  const zone = values.get('SCHEDULE_TZ') ?? 'UTC';
  const rows = [
    [
      'Reads from',
      values.get('SOURCE_URL') ?? 'nowhere: SOURCE_URL is not set',
      'SOURCE_URL',
    ],
    ['Ledgers of', partiesOf(values.get('NIGHTLY_PARTIES')), 'NIGHTLY_PARTIES'],
    ['Assets', values.get('SOURCE_ASSETS') ?? 'every asset', 'SOURCE_ASSETS'],
    [
      'Keeps objects in',
      storeUrl ?? `${values.get('DATA_DIR') ?? 'DATA_DIR'}/objects`,
      storeUrl === null ? 'DATA_DIR' : 'OBJECT_STORE_URL',
    ],
    ['Schedule', `${values.get('SCHEDULE') ?? 'none'} (${zone})`, 'SCHEDULE'],
    [
      'Requests a second',
      values.get('SOURCE_RATE') ?? 'no limit is set',
      'SOURCE_RATE',
    ],
  ];
  return el(
    'dl.numbers.plan',
    rows.map(([name, value, setting]) =>
      el('div', el('dt', name), el('dd', value), el('dd.setting', setting)),
    ),
  );
}

function partiesOf(value) {
  return value === undefined || value === null || value === 'all'
    ? 'every party that the source lists'
    : value;
}

/** Offers the start, and also the look if it can find out more than the mirror knows. */
function offer({ isFirst }) {
  const look = action('Look at the source', lookAtSource);
  const start = action('Start the first night', startNight, 'primary');
  // Redrawn only when the lists become known, so that the result of a look stays on the
  // page.
  redraw(byId('night-look'), isFirst, () =>
    isFirst
      ? [
          el(
            'p.quiet.changes',
            'A look sends two requests for each list, stores nothing, and estimates the whole night.',
          ),
        ]
      : [],
  );
  redraw(byId('night-deal'), isFirst, () =>
    isFirst ? [look, start] : [start],
  );
}

async function lookAtSource() {
  const target = byId('night-look');
  show(target, el('p.quiet', 'Asking the source for both ends of each list…'));
  try {
    const found = await post(
      'console/look',
      {},
      { timeoutMs: LOOK_TIMEOUT_MS },
    );
    show(target, ...lookParts(found));
  } catch (error) {
    show(target, el('p.notice.bad', `${capital(error.message)}.`));
  }
}

function capital(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}

function lookParts({
  lists,
  exports,
  networkRequests,
  requests,
  seconds,
  listBytes,
}) {
  const lasting = (value) => duration(value * 1_000);
  return [
    el(
      'p.told-look',
      'The first night would send ',
      el('strong', `${rangeOf(requests, count)} requests`),
      ' and take ',
      el('strong', rangeOf(seconds, lasting)),
      '.',
    ),
    el(
      'ul.plain',
      lists.map(({ list, rows, requests: pages }) =>
        el(
          'li',
          `${capital(list)}: ${rangeOf(rows, count)} rows in ${rangeOf(pages, count)} requests, for two readings.`,
        ),
      ),
      el(
        'li',
        `Exports: ${rangeOf(exports, count)} requests, one for each party with a ledger; a large ledger takes more.`,
      ),
      el(
        'li',
        `Network: ${plural(networkRequests, 'request')}, which shows which network it is.`,
      ),
      listBytes !== null &&
        el('li', `The lists: ${rangeOf(listBytes, bytes)} of JSON.`),
    ),
    el(
      'p.quiet',
      'The size of the exports is not shown before they are requested. Two requests were sent for each list, and nothing was stored.',
    ),
  ];
}

/** Formats a range: `37`, `about 30 to 40`, or `at least 30`. */
function rangeOf({ least, most }, format) {
  const low = format(least);
  if (most === null) return `at least ${low}`;
  const high = format(most);
  return low === high ? low : `about ${low} to ${high}`;
}

async function startNight() {
  await startRun({ kind: 'nightly' });
  announce('The nightly run is queued');
  return 'Queued';
}
