// A party's ledger: what is known of it, what flowed each day, and how an account's balance went.
import { ask } from '../common/ask.js';
import { chart } from '../common/charts.js';
import { openDialog } from '../common/dialog.js';
import { el, failed, show } from '../common/dom.js';
import { bytes, count, plural, shortId } from '../common/format.js';
import { formatTime, time, timeZone } from '../common/time.js';
import { orderButton } from '../common/orders.js';
import { entryList } from './entries.js';
import { download, exportable } from './parties.js';

export async function openParty(partyId, closed) {
  const dialog = openDialog('A party’s ledger', el('p', { class: 'loading' }, 'Loading…'), closed);
  try {
    const party = await ask(`/console/parties/${encodeURIComponent(partyId)}`);
    dialog.show(...content(party));
  } catch (error) {
    dialog.show(failed(error, () => void openParty(partyId, closed)));
  }
}

function content(party) {
  const segments = party.covered.filter(({ rows }) => rows !== null).length;
  const facts = [
    ['Entries', count(party.rows)],
    ['As CSV', bytes(party.bytes)],
    ['Segments', count(segments)],
    ['Last entry', time(party.lastEntryAt)],
    ['Known to', time(party.knownTo)],
    ['First seen', time(party.firstSeenAt)],
  ];
  const parts = [
    el('p', { class: 'id whole' }, party.partyId),
    el(
      'dl',
      { class: 'numbers' },
      facts.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value))),
    ),
    el(
      'p',
      { class: 'deal' },
      exportable(party.partyId) && orderButton({ partyId: party.partyId, assetId: null }, 'Export now'),
      party.knownTo !== null && download(party),
    ),
  ];
  if (party.accounts.length === 0) {
    const why =
      party.rows === '0'
        ? 'This ledger has no entries, as far as it is known.'
        : 'Its entries are not in the warehouse yet: the next load brings them.';
    return [...parts, el('p', { class: 'none' }, why)];
  }
  return [...parts, ...charts(party), ...entryList(party)];
}

function charts(party) {
  const assets = [...new Set(party.accounts.map(({ assetId }) => assetId))];
  const [flows, balance] = [el('div', { class: 'chart' }), el('div', { class: 'chart' })];
  const asset = el(
    'select',
    {},
    assets.map((id) => el('option', { value: id, title: id }, shortId(id))),
  );
  const account = el('select');
  const accountsOf = (id) => party.accounts.filter(({ assetId }) => assetId === id);
  const drawBalance = () =>
    void loadBalance(balance, party.partyId, accountsOf(asset.value)[Number(account.value)]);
  const choose = () => {
    account.replaceChildren(
      ...accountsOf(asset.value).map((one, index) => el('option', { value: index }, accountName(one))),
    );
    void loadFlows(flows, party, asset.value);
    drawBalance();
  };
  asset.addEventListener('change', choose);
  account.addEventListener('change', drawBalance);
  // Not before the dialog has them: a chart is as wide as its place.
  queueMicrotask(choose);
  return [
    el('p', { class: 'choices' }, el('label', { class: 'choice' }, 'Asset', asset)),
    el('h3', {}, 'Flows by day'),
    flows,
    ...(party.isSentOnly
      ? [el('p', { class: 'hint' }, 'The source’s release exports what a party sends, not what it receives.')]
      : []),
    el(
      'div',
      { class: 'head' },
      el('h3', {}, 'Balance'),
      el('label', { class: 'choice' }, 'Account', account),
    ),
    balance,
    el(
      'p',
      { class: 'hint' },
      'Amounts are as the network writes them, in the asset’s smallest unit. Entries of one block have no order among themselves.',
    ),
    ...(BigInt(party.rows) > BigInt(party.summedMax)
      ? [
          el(
            'p',
            { class: 'hint' },
            `Accounts and charts are of the newest ${count(String(party.summedMax))} entries; SQL over the lake has all.`,
          ),
        ]
      : []),
  ];
}

function accountName({ accountType, marketId, entries }) {
  const market = marketId === null || marketId === '' ? '' : ` · market ${shortId(marketId)}`;
  return `${accountType.toLowerCase().replaceAll('_', ' ')}${market} (${plural(entries, 'entry', 'entries')})`;
}

async function loadFlows(target, party, asset) {
  try {
    const { days } = await ask(
      `/console/parties/${encodeURIComponent(party.partyId)}/flows?${new URLSearchParams({ asset, zone: timeZone() })}`,
    );
    const tail = days.at(-1);
    chart(target, {
      label: 'Flows by day',
      said: `${plural(days.length, 'day')} with entries${tail === undefined ? '' : `, the last of them ${tail.day}: ${count(tail.received)} received, ${count(tail.sent)} sent`}.`,
      times: days.map(({ day }) => dayStart(day)),
      form: 'day',
      series: [
        ...(party.isSentOnly ? [] : [received(days)]),
        {
          label: 'Sent',
          tone: 'warn',
          bars: true,
          values: days.map((day) => -Number(day.sent)),
          texts: days.map((day) => count(day.sent)),
        },
      ],
    });
  } catch (error) {
    show(
      target,
      failed(error, () => void loadFlows(target, party, asset)),
    );
  }
}

function received(days) {
  return {
    label: 'Received',
    tone: 'good',
    bars: true,
    values: days.map((day) => Number(day.received)),
    texts: days.map((day) => count(day.received)),
  };
}

/** Noon of a day in the chosen zone is near enough for a bar, whatever the zone does to its clocks. */
function dayStart(day) {
  const noon = Date.parse(`${day}T12:00:00Z`);
  for (const hours of [0, -12, 12]) {
    const at = noon + hours * 3_600_000;
    if (formatTime(at, 'day') === day) return at / 1_000;
  }
  return noon / 1_000;
}

async function loadBalance(target, partyId, { assetId, accountType, marketId }) {
  const query = new URLSearchParams({
    asset: assetId,
    type: accountType,
    ...(marketId === null ? {} : { market: marketId }),
  });
  try {
    const { points } = await ask(`/console/parties/${encodeURIComponent(partyId)}/balance?${query}`);
    if (points.length === 0) {
      show(target, el('p', { class: 'none' }, 'The source’s release gave no balances for this account.'));
      return;
    }
    const [head, tail] = [points[0], points.at(-1)];
    chart(target, {
      label: 'Balance',
      said: `${count(head.balance)} at ${formatTime(head.at)}, ${count(tail.balance)} at ${formatTime(tail.at)}.`,
      times: points.map(({ at }) => Date.parse(at) / 1_000),
      form: 'full',
      series: [
        {
          label: 'Balance',
          tone: 'live',
          values: points.map((point) => Number(point.balance)),
          texts: points.map((point) => count(point.balance)),
        },
      ],
    });
  } catch (error) {
    show(
      target,
      failed(error, () => void loadBalance(target, partyId, { assetId, accountType, marketId })),
    );
  }
}
