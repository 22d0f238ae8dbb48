// Parties, found by the beginning of their id, page after page.
import { ask } from '../common/ask.js';
import { announce, el, failed, place, show } from '../common/dom.js';
import { bytes, count, plural } from '../common/format.js';
import { time } from '../common/time.js';
import { orderButton, partyName } from '../common/orders.js';

const TYPING_MS = 60;
let next;
/** Answers that were overtaken by a newer question are left out. */
let question = 0;

export function startParties() {
  let typing;
  place('parties-search').addEventListener('input', () => {
    clearTimeout(typing);
    if (place('parties-search').value !== '') place('parties-view').value = 'id';
    typing = setTimeout(() => void loadParties(), TYPING_MS);
  });
  place('parties-form').addEventListener('submit', (event) => {
    event.preventDefault();
    clearTimeout(typing);
    void loadParties();
  });
  place('parties-view').addEventListener('change', () => {
    if (place('parties-view').value !== 'id') place('parties-search').value = '';
    void loadParties();
  });
  place('parties-more').addEventListener('click', () => void loadParties(next));
}

export async function loadParties(after) {
  const target = place('parties');
  const more = place('parties-more');
  const mine = (question += 1);
  const [search, view] = [place('parties-search').value, place('parties-view').value];
  const query = new URLSearchParams({
    view,
    ...(view === 'id' ? { search } : {}),
    ...(after === undefined ? {} : { after }),
  });
  try {
    const page = await ask(`/console/parties?${query}`);
    if (mine !== question) return;
    const rows = page.parties.map(row);
    if (after === undefined) show(target, ...(rows.length > 0 ? rows : [nothing(search, view)]));
    else target.append(...rows);
    next = page.next ?? undefined;
    more.hidden = next === undefined;
    place('parties-told').textContent =
      rows.length === 0 ? 'No party' : `${plural(target.childElementCount, 'party', 'parties')} shown`;
  } catch (error) {
    if (mine !== question) return;
    show(
      target,
      el(
        'tr',
        {},
        el(
          'td',
          { colspan: 6 },
          failed(error, () => void loadParties(after)),
        ),
      ),
    );
    announce(error.message);
  }
}

/** After an export, a night: what is shown is brought up to date unless somebody has gone further. */
export function refreshParties() {
  const target = place('parties');
  if (place('parties-more').hidden || target.childElementCount <= 25) {
    if (
      !target.contains(document.activeElement) &&
      target.querySelector('.order [aria-disabled], .order a') === null
    )
      void loadParties();
  }
}

const NOTHING = {
  recent: 'No ledger with an entry was exported yet.',
  quarantined: 'Nothing is in quarantine.',
  id: 'No party is known yet: the list was never read.',
};

function nothing(search, view) {
  return el(
    'tr',
    {},
    el(
      'td',
      { colspan: 6, class: 'none' },
      view === 'id' && search !== ''
        ? `No party’s id begins with “${search}”, or is cut like it.`
        : NOTHING[view],
    ),
  );
}

function row(party) {
  const known = party.knownTo !== null;
  return el(
    'tr',
    {},
    el(
      'th',
      { scope: 'row' },
      partyName(party.partyId),
      party.quarantinedAt !== null &&
        el('span', { class: 'badge', 'data-is': 'incomplete' }, 'in quarantine'),
    ),
    el('td', { class: 'number', 'data-label': 'Entries' }, known ? count(party.rows) : '–'),
    el('td', { class: 'number', 'data-label': 'Size' }, known ? bytes(party.bytes) : '–'),
    el('td', { 'data-label': 'Last entry' }, time(party.lastEntryAt)),
    el('td', { 'data-label': 'Known to' }, time(party.knownTo)),
    el(
      'td',
      {},
      el(
        'div',
        { class: 'deal' },
        exportable(party.partyId) && orderButton({ partyId: party.partyId, assetId: null }),
        known && download(party),
      ),
    ),
  );
}

/** The network's own accounts are listed, and cannot be exported. */
export function exportable(partyId) {
  return partyId !== 'network';
}

/** What is mirrored already, as one CSV. */
export function download({ partyId }) {
  return el(
    'a',
    {
      class: 'button',
      href: `/api/v2/ledgerentry/export?partyId=${encodeURIComponent(partyId)}`,
      download: `ledger_entries_${partyId}.csv`,
      'aria-label': `CSV: ${partyId}`,
    },
    'CSV',
  );
}
