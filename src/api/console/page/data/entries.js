// A party's entries, newest first, filtered by day, type and asset, page after page.
import { ask } from '../common/ask.js';
import { el, failed } from '../common/dom.js';
import { count, plural, shortId } from '../common/format.js';
import { partyName } from '../common/orders.js';
import { time } from '../common/time.js';

/** @returns the parts of the dialog that list the entries */
export function entryList(party) {
  const assets = [...new Set(party.accounts.map(({ assetId }) => assetId))];
  const form = el(
    'form',
    { class: 'choices' },
    day('Since', 'since'),
    day('Until (included)', 'until'),
    choice('Type', 'type', party.transferTypes, (type) => type.toLowerCase().replaceAll('_', ' ')),
    choice('Asset', 'asset', assets, shortId),
  );
  const body = el('tbody', {});
  const table = el(
    'table',
    { class: 'cards entries' },
    el('caption', { class: 'hidden' }, 'Entries'),
    el(
      'thead',
      {},
      el(
        'tr',
        {},
        ['Time', 'Type', 'Amount', 'From', 'To', 'Asset'].map((name) =>
          el('th', { scope: 'col', class: name === 'Amount' ? 'number' : undefined }, name),
        ),
      ),
    ),
    body,
  );
  const told = el('p', { class: 'hint', role: 'status' });
  const more = el('button', { type: 'button', hidden: true }, 'More entries');
  const load = pager(party, form, { body, told, more });
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('change', () => void load());
  more.addEventListener('click', () => void load(more.dataset.next));
  void load();
  const region = el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Entries' }, table);
  return [el('h3', {}, 'Entries'), form, told, region, more];
}

function day(label, name) {
  return el('label', { class: 'choice' }, label, el('input', { type: 'date', name }));
}

function choice(label, name, values, said) {
  return el(
    'label',
    { class: 'choice' },
    label,
    el(
      'select',
      { name },
      el('option', { value: '' }, 'all'),
      values.map((value) => el('option', { value, title: value }, said(value))),
    ),
  );
}

/** Answers that were overtaken by another filter are left out. */
function pager(party, form, { body, told, more }) {
  let question = 0;
  const load = async (after) => {
    const mine = (question += 1);
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ''));
    if (after !== undefined) query.set('after', after);
    try {
      const { entries, next } = await ask(
        `/console/parties/${encodeURIComponent(party.partyId)}/entries?${query}`,
      );
      if (mine !== question) return;
      if (after === undefined) body.replaceChildren();
      body.append(...entries.map((entry) => row(entry, party.partyId)));
      more.hidden = next === null;
      more.dataset.next = next ?? '';
      const shown = plural(body.childElementCount, 'entry', 'entries');
      told.textContent =
        body.childElementCount === 0 ? 'No entry is like this.' : `${shown} shown, newest first.`;
    } catch (error) {
      if (mine !== question) return;
      told.replaceChildren(failed(error, () => void load(after)));
    }
  };
  return load;
}

function row({ at, transferType, quantity, assetId, ...entry }, partyId) {
  const side = (party, account) =>
    el(
      'span',
      {},
      account === null ? '–' : account.toLowerCase().replaceAll('_', ' '),
      ...(party !== null && party !== partyId ? [' of ', partyName(party)] : []),
    );
  return el(
    'tr',
    {},
    el('th', { scope: 'row' }, time(at, 'full')),
    el('td', { 'data-label': 'Type' }, transferType.toLowerCase().replaceAll('_', ' ')),
    el('td', { class: 'number', 'data-label': 'Amount' }, count(quantity)),
    el('td', { 'data-label': 'From' }, side(entry.fromParty, entry.fromAccount)),
    el('td', { 'data-label': 'To' }, side(entry.toParty, entry.toAccount)),
    el('td', { 'data-label': 'Asset' }, el('span', { class: 'id', title: assetId }, shortId(assetId))),
  );
}
