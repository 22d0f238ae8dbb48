// Exports on demand, from the click to the file. One order a ledger; every button of it shows how it stands.
import { ask, post } from './ask.js';
import { announce, el, setText } from './dom.js';
import { bytes, shortId } from './format.js';

const POLL_MS = 700;
const orders = new Map();
let live = [];

/** Progress comes with the snapshots. */
export function takeLive(runs) {
  live = runs;
}

/** A party's id as a link to its ledger. */
export function partyName(partyId) {
  return el(
    'a',
    { class: 'id', href: `#party/${encodeURIComponent(partyId)}`, title: partyId },
    shortId(partyId),
  );
}

/** @param unit `{ partyId, assetId }` */
export function orderButton(unit, label = 'Export') {
  const button = el('button', { type: 'button', 'aria-label': `${label}: ${unit.partyId}` }, label);
  const told = el('span', { class: 'told' });
  const node = el('span', { class: 'order' }, button, told);
  const key = `${unit.partyId} ${unit.assetId ?? ''}`;
  button.addEventListener('click', () => void order(key, unit));
  const watcher = () => {
    if (!node.isConnected && node.wasShown) return false;
    node.wasShown ||= node.isConnected;
    draw(orders.get(key), button, told);
    return true;
  };
  (watchers[key] ??= new Set()).add(watcher);
  watcher();
  return node;
}

const watchers = {};
function changed(key) {
  for (const watcher of watchers[key] ?? []) if (!watcher()) watchers[key].delete(watcher);
}

function draw(state, button, told) {
  const isOpen = state !== undefined && !state.isOver;
  if (isOpen) button.setAttribute('aria-disabled', 'true');
  else button.removeAttribute('aria-disabled');
  if (state === undefined) return;
  if (state.file !== undefined && state.isOver) {
    // What the order brought is new bytes; the file holds the whole range, and its size is told when it is fetched.
    const name = state.bytes === '0' ? 'Download (nothing new)' : `Download (${bytes(state.bytes)} new)`;
    if (told.querySelector('a')?.href.endsWith(state.file) !== true) {
      told.replaceChildren(
        el('strong', { class: state.verdict }, state.verdict),
        ' ',
        el('a', { href: state.file, download: '' }, name),
      );
    }
    return;
  }
  setText(told, state.text);
}

async function order(key, { partyId, assetId }) {
  if (orders.get(key)?.isOver === false) return;
  const set = (state) => {
    orders.set(key, state);
    changed(key);
  };
  set({ isOver: false, text: 'asking…' });
  try {
    const { id } = await post('/mirror/exports', {
      partyId,
      ...(assetId === null || assetId === undefined ? {} : { assetId }),
    });
    announce('The export is queued');
    for (;;) {
      const { state, verdict, evidence } = await ask(`/mirror/exports/${id}`);
      if (state === 'done') {
        announce(`The export ended: ${verdict}`);
        const text = verdict === 'failed' ? `failed: ${evidence.error?.message ?? 'see its run'}` : '';
        set({
          isOver: true,
          verdict,
          text,
          bytes: evidence.bytes ?? '0',
          ...(verdict === 'failed' ? {} : { file: `/mirror/exports/${id}/download` }),
        });
        return;
      }
      if (state === 'cancelled') {
        set({ isOver: true, text: 'cancelled' });
        return;
      }
      const line = live.find((run) => run.runId === id)?.progress[0];
      set({ isOver: false, text: line === undefined ? state : `${bytes(line.done)} so far` });
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  } catch (error) {
    set({ isOver: true, text: error.message });
    announce(error.message);
  }
}
