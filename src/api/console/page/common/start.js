// "Run now": shows what each kind of run would request from the source before it is
// started.
import { ask, post } from './ask.js';
import { closeDialog, openDialog } from './dialog.js';
import { action, announce, el } from './dom.js';
import { bytes, count, duration, plural } from './format.js';

let lists = [];
/** Keeps the sizes of the lists, from which the cost of an audit is estimated. */
export function takeLists(streams) {
  lists = streams.filter(({ name }) => name !== 'ledger');
}

export function startButton(label, className = '') {
  return el(
    'button',
    {
      type: 'button',
      class: `changes ${className}`,
      click: () => void openStart(),
    },
    label,
  );
}

export function startRun(order) {
  return post('mirror/runs', order);
}

/** Returns the settings' values by name; a setting without a value has null. */
export async function readSettings() {
  const { settings } = await ask('console/settings');
  return new Map(settings.map(({ name, value }) => [name, value]));
}

function openStart() {
  return openDialog('Run now', async () => {
    const [preview, values] = await Promise.all([
      ask('console/preview'),
      readSettings(),
    ]);
    const pageSize = BigInt(values.get('SOURCE_PAGE_SIZE') ?? 1_000);
    return { parts: [form(choicesOf(preview, pageSize))] };
  });
}

function choicesOf(preview, pageSize) {
  const pages = lists.reduce(
    (sum, { rows }) => sum + BigInt(rows) / pageSize + 1n,
    0n,
  );
  const audit = Math.ceil(Number(pages) / preview.ratePerSecond) * 1_000;
  const nothing = 'Asks the source nothing.';
  return [
    [
      'Nightly run',
      'Lists, every due ledger, load, lake, verify.',
      nightAsks(preview),
      { kind: 'nightly' },
    ],
    [
      'Sync the lists',
      'What is new of parties and checkpoints.',
      preview.isFirst
        ? 'Asks for every page: nothing is known yet.'
        : asks(preview.lists.requestsForNew),
      { kind: 'sync' },
    ],
    [
      'Audit the lists',
      'Both lists again, from their oldest row on.',
      preview.isFirst
        ? 'Asks for every page: nothing is known yet.'
        : `${asks(pages, audit, 'at least')} Where the source lists equal rows, a page takes two.`,
      { kind: 'audit' },
    ],
    [
      'Load',
      'What is published and not in the warehouse or the lake yet.',
      nothing,
      { kind: 'load' },
    ],
    [
      'Verify',
      'Objects, warehouse and lake against their sums.',
      nothing,
      { kind: 'verify' },
    ],
  ];
}

function asks(requests, ms, how = 'about') {
  const time = ms === undefined ? '' : `, ${how} ${duration(ms)}`;
  return `Sends ${how} ${plural(requests, 'request')} to the source${time}.`;
}

/** Describes what a nightly run would request from the source, in sentences. */
export function nightAsks(preview) {
  const { isFirst, exports, audits, requests, seconds, ratePerSecond } =
    preview;
  if (isFirst)
    return `Asks for every page of both lists, then each party’s ledger: how much that is will be known once the lists have been read, or estimated by a look. At most ${ratePerSecond} requests a second.`;
  const waiting = exports.deferred + exports.notDue;
  const left =
    waiting === 0
      ? ''
      : ` ${plural(waiting, 'ledger')} wait for another nightly run.`;
  return `${asks(requests, seconds * 1_000)} ${count(exports.asked)} of them ${exports.asked === 1 ? 'is an export' : 'are exports'}.${left}${compares(audits)}`;
}

function compares({ segments, bytes: size }) {
  return segments === '0'
    ? ''
    : ` About ${plural(segments, 'closed segment')} ${segments === '1' ? 'is' : 'are'} compared once more: at least ${bytes(size)} of CSV.`;
}

function form(choices) {
  const orders = new Map(choices.map(([name, , , order]) => [name, order]));
  const node = el(
    'form.start',
    choices.map(([name, does, cost], index) =>
      el(
        'label',
        el('input', {
          type: 'radio',
          name: 'run',
          value: name,
          checked: index === 0,
        }),
        el('span', el('strong', name), ' ', does, el('span.quiet', cost)),
      ),
    ),
  );
  const start = action(
    'Start',
    async () => {
      const { kind } = await startRun(orders.get(node.elements.run.value));
      closeDialog();
      announce(`The ${kind} run is queued`);
    },
    'primary',
  );
  node.append(el('p.deal', start));
  node.addEventListener('submit', (event) => {
    event.preventDefault();
    start.click();
  });
  return node;
}

/**
 * Returns a button that ends a run of any kind at its next safe point. Pressing it
 * replaces it with a confirmation, because an accidental press could end a run that has
 * taken hours.
 */
export function cancelButton(runId, name) {
  const place = el('span.cancel.changes');
  const first = el(
    'button',
    { type: 'button', 'aria-label': `Cancel: ${name}` },
    'Cancel',
  );
  const cancel = action('Yes, cancel it', async () => {
    await ask(`mirror/runs/${runId}`, { method: 'DELETE' });
    // The run ends by itself now, so there is nothing left to press.
    const told = el('span.quiet', { tabindex: -1 }, 'Cancelling');
    place.replaceChildren(told);
    told.focus();
    announce('Cancelling');
  });
  const keep = el('button', { type: 'button' }, 'Keep it running');
  first.addEventListener('click', () => {
    place.replaceChildren(
      el('span', 'It stops at its next safe point. '),
      cancel,
      ' ',
      keep,
    );
    announce(`Cancel ${name}?`);
    keep.focus();
  });
  keep.addEventListener('click', () => {
    place.replaceChildren(first);
    first.focus();
  });
  place.append(first);
  return place;
}
