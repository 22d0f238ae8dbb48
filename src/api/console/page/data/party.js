// Shows a party's ledger: how much of it is mirrored, the flows of each day, and the
// balance of an account over time.
import { ask } from '../common/ask.js';
import { amountsOf, assetName, assetUnits } from '../common/assets.js';
import { amounts, chart } from '../common/charts.js';
import { copyButton } from '../common/copy.js';
import { openDialog } from '../common/dialog.js';
import { askFirst } from '../common/download.js';
import { el, fill, show } from '../common/dom.js';
import { bytes, count, plural, shortId, words } from '../common/format.js';
import { formatTime, time, timeZone } from '../common/time.js';
import { orderButton } from '../common/orders.js';
import { entryList } from './entries.js';
import { download, exportable, fetchNewest } from './parties.js';

export function openParty(partyId, closed) {
  const read = async () => {
    const [party, units] = await Promise.all([
      ask(pathOf(partyId)),
      assetUnits(),
    ]);
    return { parts: content(party, units) };
  };
  return openDialog('A party’s ledger', read, closed);
}

function pathOf(partyId) {
  return `console/parties/${encodeURIComponent(partyId)}`;
}

function content(party, units) {
  const segments = party.covered.filter(({ rows }) => rows !== null).length;
  const facts = [
    ['Entries', count(party.rows)],
    ['As CSV', bytes(party.bytes)],
    ['Segments', count(segments)],
    ['Last entry', time(party.lastEntryAt)],
    ['Mirrored up to', time(party.knownTo)],
    ['First seen', time(party.firstSeenAt)],
  ];
  const parts = [
    el(
      'p.deal',
      el('span.id.whole', party.partyId),
      copyButton(party.partyId, 'the id'),
    ),
    el(
      'dl.numbers',
      facts.map(([name, value]) => el('div', el('dt', name), el('dd', value))),
    ),
    el(
      'p.deal',
      exportable(party.partyId) && fetchNewest(party),
      party.knownTo !== null && download(party),
      party.lastEntryAt !== null && statementLink(party),
    ),
    exportable(party.partyId) && oneMonth(party),
  ].filter(Boolean);
  if (party.accounts.length === 0) {
    const why =
      party.rows === '0'
        ? 'This ledger has no entries, as far as it is known.'
        : 'Its entries are not in the warehouse yet: the next load brings them.';
    return [...parts, el('p.none', why)];
  }
  return [...parts, ...charts(party, units), ...entryList(party, units)];
}

/**
 * Returns a field to choose one month, with a button to fetch it and a link to download
 * the mirror's copy.
 */
function oneMonth({ partyId, lastEntryAt }) {
  const month = el('input', {
    type: 'month',
    min: '2000-01',
    placeholder: '2026-03',
    value: (lastEntryAt ?? new Date().toISOString()).slice(0, 7),
  });
  const link = el('span.deal');
  const draw = () => {
    const range = rangeOf(month.value);
    link.replaceChildren(
      ...(range === undefined
        ? []
        : downloadOfMonth(partyId, month.value, range)),
    );
  };
  month.addEventListener('change', draw);
  draw();
  return el(
    'p.deal',
    el('label.choice', 'One month (UTC)', month),
    orderButton({ partyId }, 'Fetch month', {
      cost: () =>
        rangeOf(month.value) === undefined
          ? 'Choose a month first.'
          : `Asks the source for ${month.value}, unless it is covered: one request, or more if there is much.`,
      range: () => rangeOf(month.value),
    }),
    link,
  );
}

/**
 * Returns the range of a month such as `2026-03`; undefined if the text is not a month.
 */
export function rangeOf(month) {
  const start = Date.parse(`${month}-01T00:00:00Z`);
  if (!/^\d{4}-\d\d$/.test(month) || Number.isNaN(start)) return undefined;
  const [year, number] = month.split('-').map(Number);
  const text = (ms) => `${new Date(ms).toISOString().slice(0, 19)}Z`;
  return { from: text(start), to: text(Date.UTC(year, number, 1)) };
}

/** Returns a link to the file of a month, and the place where a refusal is shown. */
export function downloadOfMonth(
  partyId,
  month,
  { from, to },
  label = 'Download the month’s copy',
) {
  const nanos = (iso) => `${BigInt(Date.parse(iso)) * 1_000_000n}`;
  const query = new URLSearchParams({
    partyId,
    'dateRange.startTimestamp': nanos(from),
    'dateRange.endTimestamp': nanos(to),
  });
  const href = `api/v2/ledgerentry/export?${query.toString()}`;
  const link = el(
    'a.button',
    { href, download: `ledger_entries_${partyId}_${month}.csv` },
    label,
  );
  return askFirst(link, `${href}&mirror.partial=true`);
}

/** Returns a link to the statement of the month of the last entry. */
function statementLink({ partyId, lastEntryAt }) {
  const query = new URLSearchParams({
    party: partyId,
    month: lastEntryAt.slice(0, 7),
  });
  return el(
    'a.button',
    { href: `statement?${query.toString()}` },
    'Monthly statement',
  );
}

function charts(party, units) {
  const assets = [...new Set(party.accounts.map(({ assetId }) => assetId))];
  const flows = el('div.chart');
  const balance = el('div.chart');
  const asset = el(
    'select',
    assets.map((id) =>
      el('option', { value: id, title: id }, assetName(units, id)),
    ),
  );
  const account = el('select');
  const accountsOf = (id) =>
    party.accounts.filter(({ assetId }) => assetId === id);
  const showBalance = () => {
    const { accountType, marketId } = accountsOf(asset.value)[
      Number(account.value)
    ];
    const query = new URLSearchParams({
      asset: asset.value,
      type: accountType,
      ...(marketId === null ? {} : { market: marketId }),
    });
    void fill(
      balance,
      () => ask(`${pathOf(party.partyId)}/balance?${query.toString()}`),
      (found, target) =>
        drawBalance(found, target, amountsOf(units, asset.value)),
    );
  };
  const choose = () => {
    account.replaceChildren(
      ...accountsOf(asset.value).map((one, index) =>
        el('option', { value: index }, accountName(one)),
      ),
    );
    const query = new URLSearchParams({ asset: asset.value, zone: timeZone() });
    void fill(
      flows,
      () => ask(`${pathOf(party.partyId)}/flows?${query.toString()}`),
      (found, target) =>
        drawFlows(found, target, {
          isSentOnly: party.isSentOnly,
          ...amountsOf(units, asset.value),
        }),
    );
    showBalance();
  };
  asset.addEventListener('change', choose);
  account.addEventListener('change', showBalance);
  // Draw only after the dialog contains the charts: a chart is as wide as its
  // container.
  queueMicrotask(choose);
  return [
    el('p.choices', el('label.choice', 'Asset', asset)),
    el('h3', 'Flows by day'),
    flows,
    party.isSentOnly &&
      el(
        'p.hint',
        'The source’s release exports what a party sends, not what it receives.',
      ),
    el('div.head', el('h3', 'Balance'), el('label.choice', 'Account', account)),
    balance,
    el(
      'p.hint',
      `${assets.every((id) => units.has(id)) ? '' : 'Amounts are as the network writes them, in the asset’s smallest unit. '}Entries of one block have no order among themselves.`,
    ),
    BigInt(party.rows) > BigInt(party.summedMax) &&
      el(
        'p.hint',
        `Accounts and charts are of the newest ${count(party.summedMax)} entries; SQL over the lake has all.`,
      ),
  ].filter(Boolean);
}

function accountName({ accountType, marketId, entries }) {
  const market =
    marketId === null || marketId === ''
      ? ''
      : ` · market ${shortId(marketId)}`;
  return `${words(accountType)}${market} (${plural(entries, 'entry', 'entries')})`;
}

function drawFlows({ days }, target, { isSentOnly, text, decimal, heading }) {
  const tail = days.at(-1);
  const told =
    tail === undefined
      ? ''
      : `, the last of them ${tail.day}: ${text(tail.received)} received, ${text(tail.sent)} sent`;
  const received = days.map((day) => day.received);
  const sent = days.map((day) => day.sent);
  chart(target, {
    label: 'Flows by day',
    said: `${plural(days.length, 'day')} with entries${told}.`,
    times: days.map(({ day }) => dayStart(day)),
    form: 'day',
    series: [
      ...(isSentOnly
        ? []
        : [
            amounts(heading('Received'), 'good', received, {
              bars: true,
              text,
              decimal,
            }),
          ]),
      amounts(heading('Sent'), 'warn', sent, {
        bars: true,
        isBelow: true,
        text,
        decimal,
      }),
    ],
  });
}

/**
 * Returns a time in the middle of a day in the chosen zone, in seconds since 1970. That
 * is exact enough for a bar, even when the clocks change that day.
 */
function dayStart(day) {
  const noon = Date.parse(`${day}T12:00:00Z`);
  for (const hours of [0, -12, 12]) {
    const at = noon + hours * 3_600_000;
    if (formatTime(at, 'day') === day) return at / 1_000;
  }
  return noon / 1_000;
}

function drawBalance({ points }, target, { text, decimal, heading }) {
  if (points.length === 0) {
    show(
      target,
      el('p.none', 'The source’s release gave no balances for this account.'),
    );
    return;
  }
  const head = points[0];
  const tail = points.at(-1);
  const balances = points.map(({ balance }) => balance);
  chart(target, {
    label: 'Balance',
    said: `${text(head.balance)} at ${formatTime(head.at)}, ${text(tail.balance)} at ${formatTime(tail.at)}.`,
    times: points.map(({ at }) => Date.parse(at) / 1_000),
    form: 'full',
    series: [amounts(heading('Balance'), 'live', balances, { text, decimal })],
  });
}
