// First of all: is the mirror complete, as of when, and does anything need a person.
import { action, el, keyed, place, setText } from '../common/dom.js';
import { bytes, count, duration } from '../common/format.js';
import { formatTime, time } from '../common/time.js';
import { orderButton, partyName } from '../common/orders.js';
import { showLastRun } from '../runs/runs.js';
import { startButton, startRun } from '../common/start.js';

const NUMBERS = [
  [
    'Ledgers covered',
    ({ status: { coverage } }) => `${count(coverage.covered)} of ${count(coverage.wanted)}`,
  ],
  ['As CSV', ({ status }) => bytes(status.ledger.bytes)],
  ['Not loaded yet', ({ status }) => count(status.ledger.notLoaded)],
  ['Jobs waiting', ({ upkeep }) => waiting(upkeep)],
  ['Disk free', ({ upkeep: { diskFreeBytes } }) => (diskFreeBytes === null ? '–' : bytes(diskFreeBytes))],
  ['Next audit', ({ upkeep: { nextAudit } }) => (nextAudit === null ? '–' : formatTime(nextAudit, 'day'))],
];

/** How many, and for how long the first of them. */
function waiting({ jobsWaiting, oldestSeconds }) {
  if (jobsWaiting === null) return '–';
  return jobsWaiting === 0 ? '0' : `${count(jobsWaiting)}, for ${duration(oldestSeconds * 1_000)}`;
}

export function showGlance(snapshot) {
  const { status, nextNight, quarantined } = snapshot;
  setText(place('source'), status.sourceUrl ?? '');
  const state = status.complete
    ? 'whole'
    : status.streams.every((stream) => stream.verdict === null)
      ? 'none'
      : 'not';
  place('glance').dataset.state = state;
  showSentence(status.sentence);
  showFreshness(status, nextNight);
  keyed(
    place('attention'),
    status.attention,
    ({ what }) => what.replace(/^\d+ /, ''),
    (item) => attentionItem(item, quarantined),
  );
  keyed(
    place('numbers'),
    NUMBERS.map(([name, read]) => ({ name, text: read(snapshot) })),
    ({ name }) => name,
    ({ name }) => {
      const value = el('dd');
      return {
        node: el('div', {}, el('dt', {}, name), value),
        update: ({ text }) => setText(value, text),
      };
    },
  );
}

/** Spoken when it changes; a date is not broken in two. */
function showSentence(text) {
  const target = place('sentence');
  if (target.textContent === text) return;
  const parts = text.split(/(\d{4}-\d\d-\d\d)/);
  target.replaceChildren(
    ...parts.map((part, index) => (index % 2 === 0 ? part : el('span', { class: 'unbroken' }, part))),
  );
}

function showFreshness(status, nextNight) {
  const target = place('fresh');
  const oldest = status.streams
    .map((stream) => stream.asOfTime)
    .filter((at) => at !== null)
    .toSorted((a, b) => Date.parse(a) - Date.parse(b))[0];
  const key = `${oldest} ${nextNight}`;
  if (target.dataset.key === key) return;
  target.dataset.key = key;
  target.replaceChildren(
    ...(oldest === undefined ? [] : ['Proven up to ', time(oldest, 'full'), ', ', time(oldest, 'ago'), '. ']),
    ...(nextNight === null ? ['No nightly run is scheduled.'] : []),
  );
}

function attentionItem() {
  const [what, why, todo, deal, list] = [
    el('strong'),
    el('span'),
    el('p', { class: 'quiet' }),
    el('div', { class: 'deal' }),
    el('ul', { class: 'asides' }),
  ];
  const node = el('li', {}, el('div', {}, el('p', {}, what, ' — ', why), todo, list), deal);
  let shown = '';
  return {
    node,
    update: (item) => {
      setText(what, item.what[0].toUpperCase() + item.what.slice(1));
      setText(why, item.why);
      showTodo(todo, item.todo);
      const key = JSON.stringify(item.action);
      if (key !== shown) deal.replaceChildren(...buttons(item.action));
      shown = key;
      if (item.action?.does === 'ask again') showAsides(list);
    },
  };
}

/** What stands between backticks is a command. */
function showTodo(node, text) {
  if (node.dataset.shown === text) return;
  node.dataset.shown = text;
  node.replaceChildren(
    ...text.split('`').map((part, index) => (index % 2 === 0 ? part : el('code', {}, part))),
  );
}

function buttons(wanted) {
  switch (wanted?.does) {
    case 'night':
      return [startButton('Run now', 'primary')];
    case 'sync':
      return [
        action(
          'Sync now',
          async () => {
            await startRun({ kind: 'sync', list: wanted.list });
            return 'Queued';
          },
          'primary',
        ),
      ];
    case 'evidence':
      return [action('Read the evidence', () => showLastRun(wanted.kind, wanted.subject), 'primary')];
    case 'ask again':
      return [startButton('Ask all again')];
    default:
      return [];
  }
}

let asides = [];
/** The units that the last snapshot names; drawn below the item that speaks of them. */
export function takeAsides(units) {
  asides = units;
}

function showAsides(target) {
  keyed(
    target,
    asides,
    ({ exportId }) => exportId,
    (unit) => ({
      node: el(
        'li',
        {},
        el(
          'div',
          {},
          partyName(unit.partyId),
          ' ',
          el('span', { class: 'quiet' }, unit.reason?.message ?? 'no reason was kept'),
        ),
        orderButton(unit, 'Ask again'),
      ),
      update: () => undefined,
    }),
  );
}
