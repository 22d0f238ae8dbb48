// Lists a party's entries page by page, newest first, filtered by day, type and asset.
import { ask } from '../common/ask.js';
import { assetAmount, assetName, headingFor } from '../common/assets.js';
import { announce, el, scrolling, setText, tableHead } from '../common/dom.js';
import { plural, words } from '../common/format.js';
import { partyName } from '../common/orders.js';
import { pager } from '../common/pager.js';
import { time } from '../common/time.js';

const NOTHING = 'No entry is like this.';

/** Returns the parts of the dialog that list the entries. */
export function entryList(party, units) {
  const assets = [...new Set(party.accounts.map(({ assetId }) => assetId))];
  const form = el(
    'form.choices',
    day('Since', 'since'),
    day('Until (included)', 'until'),
    choice('Type', 'type', party.transferTypes, words),
    choice('Asset', 'asset', assets, (id) => assetName(units, id)),
  );
  const amount = headingFor('Amount', units, assets);
  const columns = ['Time', 'Type', amount, 'From', 'To', 'Asset'];
  const head = tableHead(columns, (name) => name === amount);
  const body = el('tbody');
  const told = el('p.hint', { role: 'status' });
  const more = el('button', { type: 'button', hidden: true }, 'More entries');
  const load = pager({
    body,
    more,
    read: (after) => readEntries(party.partyId, { form, units, amount }, after),
    told: (shown) => {
      setText(
        told,
        shown === 0
          ? ''
          : `${plural(shown, 'entry', 'entries')} shown, newest first.`,
      );
      if (shown === 0) announce(NOTHING);
    },
    nothing: () => NOTHING,
  });
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('change', load);
  void load();
  const table = el(
    'table.cards.entries',
    el('caption.hidden', 'Entries'),
    head,
    body,
  );
  return [el('h3', 'Entries'), form, told, scrolling('Entries', table), more];
}

function day(label, name) {
  return el('label.choice', label, el('input', { type: 'date', name }));
}

function choice(label, name, values, said) {
  return el(
    'label.choice',
    label,
    el(
      'select',
      { name },
      el('option', { value: '' }, 'all'),
      values.map((value) => el('option', { value, title: value }, said(value))),
    ),
  );
}

async function readEntries(partyId, { form, units, amount }, after) {
  const query = new URLSearchParams(
    [...new FormData(form)].filter(([, value]) => value !== ''),
  );
  if (after !== undefined) query.set('after', after);
  const { entries, next } = await ask(
    `console/parties/${encodeURIComponent(partyId)}/entries?${query.toString()}`,
  );
  const rows = entries.map((entry) => row(entry, partyId, { units, amount }));
  return { rows, next };
}

function row(
  { at, transferType, quantity, assetId, ...entry },
  partyId,
  { units, amount },
) {
  const side = (party, account) =>
    el(
      'span',
      account === null ? '–' : words(account),
      ...(party !== null && party !== partyId
        ? [' of ', partyName(party)]
        : []),
    );
  return el(
    'tr',
    el('th', { scope: 'row' }, time(at, 'full')),
    el('td', { 'data-label': 'Type' }, words(transferType)),
    el(
      'td.number',
      { 'data-label': amount },
      assetAmount(units, assetId, quantity),
    ),
    el(
      'td',
      { 'data-label': 'From' },
      side(entry.fromParty, entry.fromAccount),
    ),
    el('td', { 'data-label': 'To' }, side(entry.toParty, entry.toAccount)),
    el(
      'td',
      { 'data-label': 'Asset' },
      el('span.id', { title: assetId }, assetName(units, assetId)),
    ),
  );
}
