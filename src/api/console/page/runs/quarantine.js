// Lists what was quarantined and why, with a button to request it again.
import { ask } from '../common/ask.js';
import { byId, el, keyed, loader, show } from '../common/dom.js';
import { plural } from '../common/format.js';
import { time } from '../common/time.js';
import { orderButton, partyName } from '../common/orders.js';

const PAGE = 50;
/**
 * Maximum number of rows shown here; the table of parties can page through any number.
 */
const SHOWN_MAX = 1_000;
let shown = PAGE;

export function startQuarantine() {
  byId('quarantine-more').addEventListener('click', () => {
    shown = Math.min(shown + PAGE, SHOWN_MAX - 1);
    void loadQuarantine();
  });
}

const NOTHING =
  'Nothing is in quarantine. A ledger whose export keeps failing is listed here, with the reason.';

export const loadQuarantine = loader(
  'quarantine',
  () => ask(`console/quarantined?limit=${shown + 1}`),
  ({ exports }, target) => {
    byId('quarantine-more').hidden =
      exports.length <= shown || shown === SHOWN_MAX - 1;
    if (exports.length === 0) show(target, el('li.none', NOTHING));
    else
      keyed(
        target,
        exports.slice(0, shown),
        ({ exportId }) => exportId,
        makeItem,
      );
  },
  (problem) => {
    byId('quarantine-more').hidden = true;
    return el('li', problem);
  },
);

function makeItem(found) {
  const node = el(
    'li',
    el(
      'div',
      el(
        'p',
        partyName(found.partyId),
        ' ',
        el(
          'span.quiet',
          'since ',
          time(found.since),
          `, after ${plural(found.attempts, 'try', 'tries')}`,
        ),
      ),
      el(
        'p.any',
        found.reason?.code !== undefined && el('code', found.reason.code),
        ' ',
        found.reason?.message ?? 'no reason was kept',
      ),
    ),
    orderButton(found, 'Ask again'),
  );
  return { node, update: () => undefined };
}
