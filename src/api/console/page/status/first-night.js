// What the first nightly run of an empty mirror will do, before anybody starts it.
import { copyButton } from '../common/copy.js';
import { action, announce, byId, el, fill, show } from '../common/dom.js';
import { nightAsks, readPlan, startRun } from '../common/start.js';
import { time } from '../common/time.js';

const LOOK = 'ledger-mirror nightly --dry-run --look';

/** Shows the panel while nothing has been mirrored and nothing is running. */
export function showFirstNight({ status, live, nextNightlyRun }) {
  const panel = byId('first-night');
  const isEmpty = status.streams.every(({ verdict }) => verdict === null);
  const wasHidden = panel.hidden;
  panel.hidden = !isEmpty || live.length > 0;
  if (panel.hidden || !wasHidden) return;
  const plan = byId('first-night-plan');
  plan.classList.add('loading');
  void fill(plan, readPlan, (read) =>
    show(plan, ...planParts(read, nextNightlyRun)),
  );
}

function planParts({ preview, values }, nextNightlyRun) {
  const folder = `${values.get('DATA_DIR') ?? 'DATA_DIR'}/objects`;
  const facts = [
    [
      'Reads from',
      values.get('SOURCE_URL') ?? 'nowhere: SOURCE_URL is not set',
    ],
    ['Ledgers of', values.get('NIGHTLY_PARTIES') ?? 'all'],
    ['Keeps objects in', values.get('OBJECT_STORE_URL') ?? folder],
    [
      'Starts by itself',
      nextNightlyRun === null ? 'never' : time(nextNightlyRun, 'full'),
    ],
  ];
  return [
    el(
      'dl.numbers.plan',
      facts.map(([name, value]) => el('div', el('dt', name), el('dd', value))),
    ),
    el('p', nightAsks(preview)),
    el(
      'p.quiet',
      'To know how much that is before it starts, two pages of each list are enough: ',
      el('code', LOOK),
      ' ',
      copyButton(LOOK),
    ),
    el('p.deal', action('Start the first night', startNight, 'primary')),
  ];
}

async function startNight() {
  await startRun({ kind: 'nightly' });
  announce('The nightly run is queued');
  return 'Queued';
}
