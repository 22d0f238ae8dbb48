// The account statement of one party for a month, as a page that can be printed.
import { ask } from '../common/ask.js';
import { amountsOf, assetUnits } from '../common/assets.js';
import { writeAddress } from '../common/address.js';
import { copyButton } from '../common/copy.js';
import { byId, el, fill, scrolling, show, tableHead } from '../common/dom.js';
import { plural, shortId, words } from '../common/format.js';
import { partyName } from '../common/orders.js';
import { explain } from '../common/terms.js';
import { formatTime, onZone, timeZone } from '../common/time.js';

const WHOLE_ID = /^[0-9a-f]{64}$/;
const AMOUNTS = ['Opening', 'Received', 'Sent', 'Closing'];

let last;

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

/** Returns the party's id; its beginning is enough, if it is that of one party. */
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
  const { partyId, month, accounts, lines, isCut, units } = found;
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
        amountsOf(units, assetId),
      ),
      lineTable(
        lines.filter((line) => line.assetId === assetId),
        partyId,
        amountsOf(units, assetId),
      ),
    ]),
    ...(isCut ? [moreLines(found)] : []),
    el(
      'p.hint',
      'Entries of one block have no order among themselves. Where the last block leaves several balances, each is given. Ids are shortened to their beginning and end.',
    ),
  );
}

/** Shows whether the mirror knows the whole month, and why not. */
function verdictOf({ verdict, reasons, knownTo, accounts }) {
  const known =
    knownTo === null
      ? 'This ledger was never exported.'
      : `The ledger is known up to ${formatTime(knownTo, 'full')} ${timeZone()}.`;
  const sums = accounts.some((account) => account.sums === 'unknown')
    ? 'every sum that can be checked agrees'
    : 'every sum agrees';
  const told = {
    complete: `The whole month is mirrored, and ${sums}.`,
    incomplete: 'A part of the month is not proven.',
    suspicious: 'Something in this month must not happen.',
  }[verdict];
  return el(
    'div.judged',
    el(
      'p',
      el('span.badge', { 'data-is': verdict }, explain(verdict)),
      ` ${told} `,
      el('span.quiet', known),
    ),
    reasons.length > 0 &&
      el(
        'ul.plain',
        reasons.map((reason) => el('li', explain(reason))),
      ),
  );
}

function accountTable(accounts, { text, heading }) {
  const amounts = AMOUNTS.map(heading);
  const [opening, received, sent, closing] = amounts;
  const columns = ['Account', ...amounts, 'Sums'];
  const amount = (name, shown) =>
    el('td.number', { 'data-label': name }, shown);
  const balanceOf = (candidates) =>
    candidates.length === 0
      ? 'not known'
      : candidates.map((one) => text(one)).join(' or ');
  return scrolling(
    'Accounts',
    el(
      'table.cards.accounts',
      el('caption.hidden', 'Accounts'),
      tableHead(columns, (name) => amounts.includes(name)),
      el(
        'tbody',
        accounts.map((account) =>
          el(
            'tr',
            el('th', { scope: 'row' }, accountName(account)),
            amount(opening, balanceOf(account.opening)),
            amount(received, text(account.received)),
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
};

function accountName({ accountType, marketId }) {
  return [
    words(accountType),
    ...(marketId === null || marketId === ''
      ? []
      : [' · market ', el('span.id', { title: marketId }, shortId(marketId))]),
  ];
}

function lineTable(lines, partyId, { text, heading }) {
  if (lines.length === 0) return el('p.none', 'No entry in this month.');
  const columns = [
    `Time (${timeZone()})`,
    'Account',
    'Type',
    'With',
    heading('Change'),
    heading('Balance'),
  ];
  return scrolling(
    'Entries',
    el(
      'table.cards.entries',
      el('caption.hidden', 'Entries'),
      tableHead(columns, (_name, index) => index >= columns.length - 2),
      el(
        'tbody',
        lines.map((line) => lineRow(line, partyId, { text, heading })),
      ),
    ),
  );
}

function lineRow(
  { at, transferType, counterpartyId, change, balance, ...account },
  partyId,
  { text, heading },
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
      { 'data-label': heading('Change') },
      `${change.startsWith('-') ? '' : '+'}${text(change)}`,
    ),
    el(
      'td.number',
      { 'data-label': heading('Balance') },
      balance === null ? '–' : text(balance),
    ),
  );
}

/** Names the command that gives all lines, of a month with very many. */
function moreLines({ lines, partyId, month }) {
  const command = `ledger-mirror query statement --party ${partyId} --month ${month}`;
  return el(
    'p.notice',
    `The first ${plural(lines.length, 'entry', 'entries')} are shown; all of them: `,
    el('code.any', command),
    ' ',
    copyButton(command),
  );
}
