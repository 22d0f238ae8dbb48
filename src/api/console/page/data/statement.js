// The account statement of one party for a month, as a page that can be printed.
import { ask } from '../common/ask.js';
import { amountsOf, assetUnits } from '../common/assets.js';
import { writeAddress } from '../common/address.js';
import { copyButton } from '../common/copy.js';
import { byId, el, fill, scrolling, show, tableHead } from '../common/dom.js';
import { count, plural, shortId, words } from '../common/format.js';
import { partyName } from '../common/orders.js';
import { downloadOfMonth, rangeOf } from './party.js';
import { explain } from '../common/terms.js';
import { formatTime, onZone, timeZone } from '../common/time.js';

const WHOLE_ID = /^[0-9a-f]{64}$/;
/**
 * How many entries of an asset are drawn at first. A browser needs seconds to lay out all
 * entries of a large month, and few readers scroll through them.
 */
const DRAWN_FIRST = 1_000;
const AMOUNTS = ['Opening', 'In', 'Out', 'Closing'];

let last;
/** Each draws the entries of one table that are not drawn yet. */
let pending = [];

export function startStatement() {
  const given = new URLSearchParams(location.search);
  const form = byId('statement-form');
  const party = byId('statement-party');
  const month = byId('statement-month');
  party.value = given.get('party') ?? '';
  month.value = given.get('month') ?? lastMonth();
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    void load(party, month.value);
  });
  byId('statement-print').addEventListener('click', () => print());
  // The browser's own menu can print too, so draw the remaining entries on this event and
  // not when the button is pressed.
  addEventListener('beforeprint', () => {
    for (const drawRest of pending) drawRest();
  });
  onZone(() => {
    if (last !== undefined) draw(last);
  });
  if (party.value !== '' && form.checkValidity()) void load(party, month.value);
}

/** Returns the last month that is over: `2026-02`. */
function lastMonth() {
  const now = new Date();
  const start = Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 1, 1);
  return new Date(start).toISOString().slice(0, 7);
}

async function load(party, month) {
  const target = byId('statement');
  byId('statement-print').hidden = true;
  show(target, el('p.quiet', 'Reading the month…'));
  await fill(
    target,
    async () => {
      const partyId = await wholeId(party.value);
      party.value = partyId;
      writeAddress('party', partyId);
      writeAddress('month', month);
      const query = new URLSearchParams({ month });
      const [found, units] = await Promise.all([
        ask(
          `console/parties/${encodeURIComponent(partyId)}/statement?${query.toString()}`,
        ),
        assetUnits(),
      ]);
      return { ...found, units };
    },
    (found) => {
      last = found;
      draw(found);
      byId('statement-print').hidden = false;
    },
  );
}

/**
 * Returns the party's full id. The beginning of an id is enough if only one party's id
 * begins with it.
 */
async function wholeId(text) {
  const id = text.trim().toLowerCase().replace(/^0x/, '');
  if (WHOLE_ID.test(id) || id === 'network') return id;
  const query = new URLSearchParams({ view: 'id', search: id });
  const { parties } = await ask(`console/parties?${query.toString()}`);
  if (parties.length === 1) return parties[0].partyId;
  throw new Error(
    parties.length === 0
      ? 'no party’s id begins like this'
      : 'more than one party’s id begins like this: give more of it',
  );
}

function draw(found) {
  const { partyId, month, accounts, lines, units } = found;
  pending = [];
  const assets = [...new Set(accounts.map(({ assetId }) => assetId))];
  show(
    byId('statement'),
    el('h2', `Statement for ${month}`),
    el('p.deal', el('span.id.whole', partyId), copyButton(partyId, 'the id')),
    verdictOf(found),
    ...(assets.length === 0
      ? [el('p.none', 'No entry of this party is mirrored up to this month.')]
      : []),
    ...assets.flatMap((assetId) => [
      el(
        'h3.asset',
        `Asset ${units.get(assetId)?.symbol ?? ''} `,
        el('span.id.whole', assetId),
      ),
      accountTable(
        accounts.filter((one) => one.assetId === assetId),
        found.isSentOnly,
        amountsOf(units, assetId),
      ),
      lineTable(
        lines.filter((line) => line.assetId === assetId),
        partyId,
        amountsOf(units, assetId),
      ),
    ]),
    el(
      'p.hint',
      'In and Out count moves between accounts of the party too; the question top-parties leaves these out. Entries of one block have no order among themselves: they stand so that balances follow each other where they can. Where the last block leaves several balances, each is given. Ids are shortened to their beginning and end.',
    ),
  );
}

/**
 * Shows whether the mirror knows the whole month, and why not. A known limit of the
 * source comes first, because it explains the figures below.
 */
function verdictOf(found) {
  const { verdict, reasons, provenTo, isSentOnly, isCut } = found;
  return el(
    'div.judged',
    isSentOnly &&
      el(
        'p',
        'The source exports only what this party sends. Received amounts are missing, so the sums cannot agree, and a balance is that of the last entry sent.',
      ),
    el(
      'p',
      el(
        'span.badge',
        { 'data-is': verdict },
        explain(verdict),
        provenTo !== null && ' so far',
      ),
      ` ${sentenceOf(found)} `,
      provenTo === null && el('span.quiet', knownUpTo(found)),
    ),
    reasons.length > 0 &&
      el(
        'ul.plain',
        reasons.map((reason) => el('li', explain(reason))),
      ),
    isCut && moreLines(found),
  );
}

function knownUpTo({ knownTo }) {
  return knownTo === null
    ? 'This ledger was never exported.'
    : `The ledger is known up to ${instant(knownTo)}.`;
}

function instant(at) {
  return `${formatTime(at, 'full')} ${timeZone()}`;
}

function sentenceOf({ verdict, provenTo, isSentOnly, accounts }) {
  const isUncertain = accounts.some(({ sums }) => sums === 'unknown');
  const sums = isUncertain
    ? 'every sum that can be checked agrees'
    : 'every sum agrees';
  if (provenTo !== null)
    return `The month is not over: proven up to ${instant(provenTo)}${isSentOnly ? '' : `, and ${sums}`}.`;
  if (verdict === 'complete')
    return isSentOnly
      ? 'All that the source exports of this month is mirrored.'
      : `The whole month is mirrored, and ${sums}.`;
  return {
    incomplete: 'A part of the month is not proven.',
    suspicious: 'Something in this month must not happen.',
  }[verdict];
}

/**
 * Returns an amount that can break only after a comma. Paper does not scroll, and an
 * amount broken between two digits would be read as two amounts.
 */
function breakable(text) {
  return text
    .split(/(?<=,)/)
    .flatMap((part, index) => (index === 0 ? [part] : [el('wbr'), part]));
}

/**
 * Returns the caption of a table; it is visible only if it says more than the column
 * headings.
 */
function captionOf(name, { heading }) {
  const caption = heading(name);
  return el(caption === name ? 'caption.hidden' : 'caption', caption);
}

function accountTable(accounts, isSentOnly, amounts) {
  const { text } = amounts;
  const [opening, received, sent, closing] = AMOUNTS;
  const columns = ['Account', ...AMOUNTS, 'Sums'];
  const amount = (name, shown) =>
    el('td.number', { 'data-label': name }, el('span', breakable(shown)));
  const balanceOf = (candidates) =>
    candidates.length === 0
      ? 'not known'
      : candidates.map((one) => text(one)).join(' or ');
  return scrolling(
    'Accounts',
    el(
      'table.cards.accounts',
      captionOf('Accounts', amounts),
      tableHead(columns, (name) => AMOUNTS.includes(name)),
      el(
        'tbody',
        accounts.map((account) =>
          el(
            'tr',
            el('th', { scope: 'row' }, accountName(account)),
            amount(opening, balanceOf(account.opening)),
            amount(
              received,
              `${isSentOnly ? 'at least ' : ''}${text(account.received)}`,
            ),
            amount(sent, text(account.sent)),
            amount(closing, balanceOf(account.closing)),
            el('td', { 'data-label': 'Sums' }, SUMS[account.sums]),
          ),
        ),
      ),
    ),
  );
}

const SUMS = {
  agree: 'agree',
  differ: '! differ',
  unknown: 'not certain',
  oneSided: 'one side only',
};

function accountName({ accountType, marketId }) {
  return [
    words(accountType),
    ...(marketId === null || marketId === ''
      ? []
      : [' · market ', el('span.id', { title: marketId }, shortId(marketId))]),
  ];
}

function lineTable(lines, partyId, amounts) {
  if (lines.length === 0) return el('p.none', 'No entry in this month.');
  const columns = [
    `Time (${timeZone()})`,
    'Account',
    'Type',
    'With',
    'Change',
    'Balance',
  ];
  const rowsOf = (some) => some.map((line) => lineRow(line, partyId, amounts));
  const body = el('tbody', rowsOf(lines.slice(0, DRAWN_FIRST)));
  const table = scrolling(
    'Entries',
    el(
      'table.cards.entries',
      captionOf('Entries', amounts),
      tableHead(columns, (_name, index) => index >= columns.length - 2),
      body,
    ),
  );
  if (lines.length <= DRAWN_FIRST) return table;
  const drawRest = () => {
    if (!more.isConnected) return;
    more.remove();
    body.append(...rowsOf(lines.slice(DRAWN_FIRST)));
  };
  const more = el(
    'p.deal',
    el(
      'span.hint',
      `The first ${count(DRAWN_FIRST)} are shown; paper has all. `,
    ),
    el(
      'button',
      { type: 'button', click: drawRest },
      `Show all ${count(lines.length)} entries`,
    ),
  );
  pending.push(drawRest);
  return el('div', table, more);
}

function lineRow(
  { at, transferType, counterpartyId, change, balance, ...account },
  partyId,
  { text },
) {
  const other =
    counterpartyId === null || counterpartyId === partyId
      ? [counterpartyId === null ? '–' : 'itself']
      : [partyName(counterpartyId)];
  return el(
    'tr',
    el('th', { scope: 'row' }, formatTime(at, 'full')),
    el('td', { 'data-label': 'Account' }, el('span', accountName(account))),
    el('td', { 'data-label': 'Type' }, words(transferType ?? '–')),
    el('td', { 'data-label': 'With' }, ...other),
    el(
      'td.number',
      { 'data-label': 'Change' },
      el(
        'span',
        breakable(`${change.startsWith('-') ? '' : '+'}${text(change)}`),
      ),
    ),
    el(
      'td.number',
      { 'data-label': 'Balance' },
      el('span', breakable(balance === null ? '–' : text(balance))),
    ),
  );
}

/**
 * Says that a month has more entries than are shown, and where to find all of them. Paper
 * has no links, so the command is given too.
 */
function moreLines({ lines, partyId, month }) {
  const command = `ledger-mirror query statement --party ${partyId} --month ${month}`;
  return el(
    'div.cut',
    el(
      'p',
      `This page has only the first ${plural(lines.length, 'entry', 'entries')} of the month; the accounts count all. All entries: `,
      el('code.any', command),
      ' ',
      copyButton(command),
    ),
    el(
      'p.on-screen',
      downloadOfMonth(partyId, month, rangeOf(month), 'Download all as CSV'),
    ),
  );
}
