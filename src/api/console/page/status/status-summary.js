// The first part of the page: whether the mirror is complete, up to when, and whether
// anything needs the operator.
import { copyButton } from '../common/copy.js';
import { action, byId, el, keyed, redraw, setText } from '../common/dom.js';
import { bytes, count, duration } from '../common/format.js';
import { formatTime, time } from '../common/time.js';
import { orderButton, partyName } from '../common/orders.js';
import { explain } from '../common/terms.js';
import { showLastRun } from '../runs/runs.js';
import { startButton, startRun } from '../common/start.js';

const NUMBERS = [
  [
    'Ledgers covered',
    ({ status: { coverage } }) =>
      `${count(coverage.covered)} of ${count(coverage.wanted)}`,
  ],
  ['As CSV', ({ status }) => bytes(status.ledger.bytes)],
  ['Segments to load', ({ status }) => count(status.ledger.notLoaded)],
  ['Jobs waiting', ({ upkeep }) => waiting(upkeep)],
  [
    'Disk free',
    ({ upkeep: { diskFreeBytes } }) =>
      diskFreeBytes === null ? '–' : bytes(diskFreeBytes),
  ],
  [
    'Next audit',
    ({ upkeep: { nextAudit } }) =>
      nextAudit === null ? '–' : formatTime(nextAudit, 'day'),
  ],
];

/** Returns how many jobs are waiting, and how long the oldest has waited. */
function waiting({ jobsWaiting, oldestSeconds }) {
  if (jobsWaiting === null) return '–';
  return jobsWaiting === 0
    ? '0'
    : `${count(jobsWaiting)}, for ${duration(oldestSeconds * 1_000)}`;
}

export function showStatusSummary(snapshot) {
  const { status, nextNightlyRun } = snapshot;
  setText(byId('source'), status.sourceUrl ?? '');
  const isNew = status.streams.every((stream) => stream.verdict === null);
  const unfinished = isNew ? 'none' : 'not';
  const state = status.complete ? 'whole' : unfinished;
  byId('status-summary').dataset.state = state;
  showSentence(status.sentence);
  showFreshness(status, nextNightlyRun);
  keyed(
    byId('attention'),
    status.attention,
    ({ what }) => what.replace(/^\d+ /, ''),
    attentionItem,
  );
  keyed(
    byId('numbers'),
    NUMBERS.map(([name, read]) => ({ name, text: read(snapshot) })),
    ({ name }) => name,
    ({ name }) => {
      const value = el('dd');
      return {
        node: el('div', el('dt', explain(name)), value),
        update: ({ text }) => setText(value, text),
      };
    },
  );
}

/**
 * Shows the sentence, which screen readers speak when it changes; dates are not broken
 * across lines.
 */
function showSentence(text) {
  const parts = text.split(/(\d{4}-\d\d-\d\d)/);
  redraw(byId('sentence'), text, () =>
    parts.flatMap((part, index) =>
      index % 2 === 0 ? explain(part) : [el('span.unbroken', part)],
    ),
  );
}

function showFreshness(status, nextNightlyRun) {
  const times = status.streams.map((stream) => stream.asOfTime);
  const oldest = times.includes(null)
    ? null
    : times.toSorted((a, b) => Date.parse(a) - Date.parse(b))[0];
  redraw(byId('fresh'), `${oldest} ${nextNightlyRun}`, () => [
    ...(oldest === null
      ? []
      : [
          'Proven up to ',
          time(oldest, 'full'),
          ', ',
          time(oldest, 'ago'),
          '. ',
        ]),
    ...(nextNightlyRun === null ? ['No nightly run is scheduled.'] : []),
  ]);
}

function attentionItem() {
  const what = el('strong');
  const why = el('span');
  const todo = el('p.quiet');
  const deal = el('div.deal');
  const list = el('ul.quarantine');
  const node = el('li', el('div', el('p', what, ' — ', why), todo, list), deal);
  return {
    node,
    update: (item) => {
      setText(what, item.what[0].toUpperCase() + item.what.slice(1));
      setText(why, item.why);
      // Text between backticks is a command.
      redraw(todo, item.todo, () =>
        item.todo
          .split('`')
          .flatMap((part, index) =>
            index % 2 === 0
              ? [part]
              : [el('code', part), ' ', copyButton(part)],
          ),
      );
      redraw(deal, JSON.stringify(item.action), () => buttons(item.action));
      if (item.action?.does === 'ask again') showQuarantined(list);
    },
  };
}

function buttons(wanted) {
  const syncNow = async () => {
    await startRun({ kind: 'sync', list: wanted.list });
    return 'Queued';
  };
  switch (wanted?.does) {
    case 'nightly':
      return [startButton('Run now', 'primary')];
    case 'sync':
      return [action('Sync now', syncNow, 'changes primary')];
    case 'evidence':
      return [
        action(
          'Read the evidence',
          () => showLastRun(wanted.kind, wanted.subject),
          'primary',
        ),
      ];
    case 'ask again':
      return [startButton('Ask all again')];
    default:
      return [];
  }
}

let quarantined = [];
/**
 * Keeps the quarantined ledgers of the last snapshot, which are listed below the item
 * about the quarantine.
 */
export function takeQuarantined(found) {
  quarantined = found;
}

function showQuarantined(target) {
  keyed(
    target,
    quarantined,
    ({ exportId }) => exportId,
    (found) => {
      const reason = el(
        'span.quiet',
        found.reason?.message ?? 'no reason was kept',
      );
      const who = el('div', partyName(found.partyId), ' ', reason);
      return {
        node: el('li', who, orderButton(found, 'Ask again')),
        update: () => undefined,
      };
    },
  );
}
