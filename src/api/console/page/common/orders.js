// Exports on demand, from the click to the file. A ledger has at most one order at a
// time, and all buttons of that ledger show its state.
import { ask, post } from './ask.js';
import { announce, el, redraw } from './dom.js';
import { askFirst } from './download.js';
import { bytes, shortId } from './format.js';

const POLL_MS = 700;
const orders = new Map();
let live = [];

/** Keeps the live runs of the last snapshot, which contain the progress of orders. */
export function takeLive(runs) {
  live = runs;
}

/** Returns a party's id as a link to its ledger. */
export function partyName(partyId) {
  return el(
    'a.id',
    { href: `#party/${encodeURIComponent(partyId)}`, title: partyId },
    shortId(partyId),
  );
}

/**
 * Returns a button that orders an export and then shows its progress.
 * @param cost returns what the order will request from the source; if given, the reader
 *   must confirm it first, because an accidental press could cost the source many
 *   requests
 * @param range returns `{ from, to }`, the part of the ledger to order; undefined means
 *   all of it
 */
export function orderButton(
  { partyId, assetId = null },
  label,
  { cost, range } = {},
) {
  const button = el(
    'button',
    { type: 'button', 'aria-label': `${label}: ${partyId}` },
    label,
  );
  const told = el('span.told');
  const key = `${partyId} ${assetId ?? ''}${range === undefined ? '' : ' range'}`;
  const send = () => void order(key, { partyId, assetId }, range?.());
  const question =
    cost === undefined ? undefined : questionOf(cost, button, send);
  const node = el(
    'span.order.changes',
    { 'data-ledger': key },
    button,
    question,
    told,
  );
  button.addEventListener('click', () => {
    if (question === undefined) send();
    else if (orders.get(key)?.isOver !== false) question.open();
  });
  node.draw = () => draw(orders.get(key), button, told);
  node.draw();
  return node;
}

/** Returns the question that the reader must confirm before the order is sent. */
function questionOf(cost, button, send) {
  const node = el('span.order-question', { hidden: true });
  const close = () => {
    node.hidden = true;
    button.focus();
  };
  const yes = el('button.primary', { type: 'button' }, 'Fetch');
  const no = el('button', { type: 'button', click: close }, 'Not now');
  yes.addEventListener('click', () => {
    close();
    send();
  });
  const question = el('span');
  node.append(question, ' ', yes, ' ', no);
  node.open = () => {
    question.textContent = cost();
    node.hidden = false;
    announce(question.textContent);
    no.focus();
  };
  return node;
}

function changed(key) {
  for (const node of document.querySelectorAll('.order'))
    if (node.dataset.ledger === key) node.draw();
}

function draw(state, button, told) {
  if (state === undefined) return;
  if (state.isOver) button.removeAttribute('aria-disabled');
  else button.setAttribute('aria-disabled', 'true');
  redraw(told, state.file ?? state.text, () =>
    state.file === undefined ? [state.text] : fileOf(state),
  );
}

/**
 * The size shown counts only the new bytes. The file covers the whole range, and its
 * size is only known when it is downloaded.
 */
function fileOf({ verdict, bytes: size, file }) {
  const name =
    size === '0' ? 'Download (nothing new)' : `Download (${bytes(size)} new)`;
  return [
    el('strong', { class: verdict }, verdict),
    ' ',
    ...askFirst(
      el('a', { href: file, download: '' }, name),
      `${file}?partial=true`,
    ),
  ];
}

async function order(key, { partyId, assetId }, range) {
  if (orders.get(key)?.isOver === false) return;
  const set = (state) => {
    orders.set(key, state);
    changed(key);
  };
  set({ isOver: false, text: 'asking…' });
  try {
    const { id } = await post('mirror/exports', {
      partyId,
      ...(assetId === null ? {} : { assetId }),
      ...range,
    });
    announce('The export is queued');
    for (;;) {
      const status = await ask(`mirror/exports/${id}`);
      if (status.state === 'done' || status.state === 'cancelled') {
        set(endOf(status));
        return;
      }
      const line = live.find((run) => run.runId === id)?.progress[0];
      set({
        isOver: false,
        text: line === undefined ? status.state : `${bytes(line.done)} so far`,
      });
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  } catch (error) {
    set({ isOver: true, text: error.message });
    announce(error.message);
  }
}

function endOf({ id, state, verdict, evidence }) {
  if (state === 'cancelled') return { isOver: true, text: 'cancelled' };
  announce(`The export ended: ${verdict}`);
  if (verdict === 'failed')
    return {
      isOver: true,
      text: `failed: ${evidence.error?.message ?? 'see its run'}`,
    };
  return {
    isOver: true,
    verdict,
    bytes: evidence.bytes ?? '0',
    file: `mirror/exports/${id}/download`,
  };
}
