// What was quarantined, why, and asking again.
import { ask } from '../common/ask.js';
import { el, failed, keyed, place, show } from '../common/dom.js';
import { plural } from '../common/format.js';
import { time } from '../common/time.js';
import { orderButton, partyName } from '../common/orders.js';

const PAGE = 50;
/** The table of parties pages through however many there are. */
const SHOWN_MAX = 1_000;
let shown = PAGE;

export function startAside() {
  place('aside-more').addEventListener('click', () => {
    shown = Math.min(shown + PAGE, SHOWN_MAX - 1);
    void loadAside();
  });
}

export async function loadAside() {
  const target = place('aside');
  try {
    const { units } = await ask(`/console/quarantined?limit=${shown + 1}`);
    place('aside-more').hidden = units.length <= shown || shown === SHOWN_MAX - 1;
    if (units.length === 0) {
      target.list = undefined;
      show(
        target,
        el(
          'p',
          { class: 'none' },
          'Nothing is in quarantine. A ledger whose export fails again and again would stand here, with the reason.',
        ),
      );
      return;
    }
    if (target.list === undefined) {
      target.list = el('ul', { class: 'asides wide' });
      show(target, target.list);
    }
    keyed(target.list, units.slice(0, shown), ({ exportId }) => exportId, makeUnit);
  } catch (error) {
    target.list = undefined;
    place('aside-more').hidden = true;
    show(target, failed(error, loadAside));
  }
}

function makeUnit(unit) {
  const node = el(
    'li',
    {},
    el(
      'div',
      {},
      el(
        'p',
        {},
        partyName(unit.partyId),
        ' ',
        el(
          'span',
          { class: 'quiet' },
          'since ',
          time(unit.since),
          `, after ${plural(unit.attempts, 'try', 'tries')}`,
        ),
      ),
      el(
        'p',
        { class: 'any' },
        unit.reason?.code !== undefined && el('code', {}, unit.reason.code),
        ' ',
        unit.reason?.message ?? 'no reason was kept',
      ),
    ),
    orderButton(unit, 'Ask again'),
  );
  return { node, update: () => undefined };
}
