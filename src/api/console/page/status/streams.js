// Shows what is mirrored: each list and the ledgers, with verdict and freshness.
import { byId, el, keyed, redraw, setText } from '../common/dom.js';
import { count } from '../common/format.js';
import { explain } from '../common/terms.js';
import { time } from '../common/time.js';

const NAMES = {
  parties: 'Parties',
  checkpoints: 'Checkpoints',
  ledger: 'Ledger entries',
};

export function showStreams({ status }) {
  const audits = new Map(
    (status.lists ?? []).map(({ list, lastAuditAt }) => [list, lastAuditAt]),
  );
  const items = status.streams.map((stream) => ({
    ...stream,
    auditedAt: audits.get(stream.name),
    held: heldOf(stream, status),
  }));
  keyed(byId('streams'), items, ({ name }) => name, makeStream);
}

/**
 * Counts the stored rows. `network` is counted separately because it has no ledger; a
 * checkpoint that the source lists twice is stored once.
 */
function heldOf({ name, rows }, { hasNetwork, coverage }) {
  if (name === 'parties' && hasNetwork)
    return `${count(coverage.listed)} and network`;
  return count(rows);
}

function makeStream({ name }) {
  const badge = el('span.badge');
  const rows = el('span');
  const figures = el(
    'span.figures',
    rows,
    name === 'checkpoints' && el('span.extra', ' unique'),
  );
  const asOf = el('dd');
  const checked = el('dd');
  const audited = el('dd');
  const node = el(
    'article',
    el('div.head', el('h3', explain(NAMES[name]), ' ', figures), badge),
    el(
      'dl.facts',
      el('div', el('dt', explain('Complete up to')), asOf),
      el('div.extra', el('dt', 'Last checked'), checked),
      name !== 'ledger' &&
        el('div.extra', el('dt', explain('Last audit')), audited),
    ),
  );
  return {
    node,
    update: ({ verdict, asOfTime, asOfBlock, checkedAt, auditedAt, held }) => {
      redraw(audited, auditedAt, () => [time(auditedAt, 'full')]);
      redraw(badge, verdict, () => explain(verdict ?? 'not yet'));
      badge.dataset.is = verdict ?? 'waiting';
      setText(rows, held);
      redraw(asOf, `${asOfTime} ${asOfBlock}`, () => [
        asOfTime === null ? '–' : time(asOfTime, 'full'),
        asOfBlock === null ? '' : el('span.quiet', ` block ${asOfBlock}`),
      ]);
      redraw(checked, checkedAt, () =>
        checkedAt === null
          ? ['never']
          : [
              time(checkedAt, 'full'),
              el('span.quiet', ' ', time(checkedAt, 'ago')),
            ],
      );
    },
  };
}
