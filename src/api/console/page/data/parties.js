// Lists parties page by page, and finds them by the beginning of their id.
import { ask } from '../common/ask.js';
import { keepInAddress, writeAddress } from '../common/address.js';
import { byId, el, setText } from '../common/dom.js';
import { askFirst } from '../common/download.js';
import { bytes, count, plural } from '../common/format.js';
import { formatTime, time, timeZone } from '../common/time.js';
import { orderButton, partyName } from '../common/orders.js';
import { pager } from '../common/pager.js';

const TYPING_MS = 60;
const PAGE_ROWS = 25;
let load;

export function startParties() {
  const form = byId('parties-form');
  const search = byId('parties-search');
  const view = byId('parties-view');
  keepInAddress('show', view, 'recent');
  keepInAddress('search', search);
  load = pager({
    body: byId('parties'),
    more: byId('parties-more'),
    read: async (after) => {
      const query = new URLSearchParams({
        view: view.value,
        ...(view.value === 'id' ? { search: search.value } : {}),
        ...(after === undefined ? {} : { after }),
      });
      const { parties, next } = await ask(
        `console/parties?${query.toString()}`,
      );
      return { rows: parties.map(row), next };
    },
    told: (shown) =>
      setText(
        byId('parties-told'),
        shown === 0 ? 'No party' : `${plural(shown, 'party', 'parties')} shown`,
      ),
    nothing: () =>
      view.value === 'id' && search.value !== ''
        ? `No party’s id begins with “${search.value}”, or is cut like it.`
        : NOTHING[view.value],
  });
  let typing;
  search.addEventListener('input', () => {
    clearTimeout(typing);
    if (search.value !== '' && view.value !== 'id') {
      view.value = 'id';
      writeAddress('show', 'id');
    }
    typing = setTimeout(() => void load(), TYPING_MS);
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    clearTimeout(typing);
    void load();
  });
  view.addEventListener('change', () => {
    if (view.value !== 'id') {
      search.value = '';
      writeAddress('search', '');
    }
    void load();
  });
}

export function loadParties() {
  return load();
}

/**
 * Reloads the list after an export or a nightly run, unless the reader has paged further
 * or is using the list.
 */
export function refreshParties() {
  const target = byId('parties');
  // A closed dialog returns the focus to the row that opened it, so this row must not be
  // redrawn.
  const isBusy =
    byId('dialog').open ||
    target.contains(document.activeElement) ||
    target.querySelector('.order [aria-disabled], .order a') !== null;
  if (target.childElementCount <= PAGE_ROWS && !isBusy) void load();
}

const NOTHING = {
  recent: 'No ledger with an entry was exported yet.',
  quarantined: 'Nothing is in quarantine.',
  id: 'No party is known yet: the list was never read.',
};

function row(party) {
  const known = party.knownTo !== null;
  return el(
    'tr',
    el(
      'th',
      { scope: 'row' },
      partyName(party.partyId),
      party.quarantinedAt !== null &&
        el('span.badge', { 'data-is': 'incomplete' }, 'in quarantine'),
    ),
    el(
      'td.number',
      { 'data-label': 'Entries' },
      known ? count(party.rows) : '–',
    ),
    el('td.number', { 'data-label': 'Size' }, known ? bytes(party.bytes) : '–'),
    el('td', { 'data-label': 'Last entry' }, time(party.lastEntryAt)),
    el('td', { 'data-label': 'Mirrored up to' }, time(party.knownTo)),
    el(
      'td',
      el(
        'div.deal',
        exportable(party.partyId) && fetchNewest(party),
        known && download(party),
      ),
    ),
  );
}

/**
 * Whether a party can be exported: the network's own accounts are listed, but have no
 * export.
 */
export function exportable(partyId) {
  return partyId !== 'network';
}

/**
 * Returns a button that fetches the new part of a ledger, once the reader has confirmed
 * the cost.
 */
export function fetchNewest({ partyId, knownTo }) {
  const since =
    knownTo === null
      ? 'the whole ledger'
      : `what is new since ${formatTime(knownTo, 'minute')} ${timeZone()}`;
  return orderButton({ partyId }, 'Fetch newest', {
    cost: () =>
      `Asks the source for ${since}: one request, or more if there is much.`,
  });
}

/**
 * Returns a link that downloads everything mirrored so far of a party's ledger, as one
 * CSV file.
 */
export function download({ partyId }) {
  const href = `api/v2/ledgerentry/export?partyId=${encodeURIComponent(partyId)}`;
  const link = el(
    'a.button',
    {
      href,
      download: `ledger_entries_${partyId}.csv`,
      'aria-label': `Download copy: ${partyId}`,
    },
    'Download copy',
  );
  return askFirst(link, `${href}&mirror.partial=true`);
}
