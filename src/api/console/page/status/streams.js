// What is mirrored: each list and the ledgers, with verdict and freshness.
import { el, keyed, place, setText } from '../common/dom.js';
import { count } from '../common/format.js';
import { time } from '../common/time.js';

const NAMES = { parties: 'Parties', checkpoints: 'Checkpoints', ledger: 'Ledger entries' };

export function showStreams({ status }) {
  const audits = new Map((status.lists ?? []).map(({ list, lastAuditAt }) => [list, lastAuditAt]));
  const target = place('streams');
  target.classList.remove('loading');
  const items = status.streams.map((stream) => ({
    ...stream,
    auditedAt: audits.get(stream.name),
    held: heldOf(stream, status),
  }));
  keyed(target, items, ({ name }) => name, makeStream);
}

/** `network` has no ledger; a checkpoint that the source lists twice is held once. */
function heldOf({ name, rows }, { hasNetwork, coverage }) {
  if (name === 'parties' && hasNetwork) return `${count(coverage.listed)} and network`;
  return count(rows);
}

export function verdictBadge(node, verdict, otherwise = 'not yet') {
  setText(node, verdict ?? otherwise);
  node.className = 'badge';
  node.dataset.is = verdict ?? 'waiting';
}

function makeStream({ name }) {
  const [badge, rows] = [el('span'), el('span')];
  const figures = el(
    'span',
    { class: 'figures' },
    rows,
    name === 'checkpoints' && el('span', { class: 'extra' }, ' unique'),
  );
  const [asOf, checked, audited] = [el('dd'), el('dd'), el('dd')];
  const node = el(
    'article',
    {},
    el('div', { class: 'head' }, el('h3', {}, NAMES[name], ' ', figures), badge),
    el(
      'dl',
      { class: 'facts' },
      el('div', {}, el('dt', {}, 'Complete up to'), asOf),
      el('div', { class: 'extra' }, el('dt', {}, 'Last checked'), checked),
      name !== 'ledger' && el('div', { class: 'extra' }, el('dt', {}, 'Last audit'), audited),
    ),
  );
  return {
    node,
    update: ({ verdict, asOfTime, asOfBlock, checkedAt, auditedAt, held }) => {
      put(audited, auditedAt, () => [time(auditedAt, 'full')]);
      verdictBadge(badge, verdict);
      setText(rows, held);
      put(asOf, `${asOfTime} ${asOfBlock}`, () => [
        asOfTime === null ? '–' : time(asOfTime, 'full'),
        asOfBlock === null ? '' : el('span', { class: 'quiet' }, ` block ${asOfBlock}`),
      ]);
      put(checked, checkedAt, () =>
        checkedAt === null
          ? ['never']
          : [time(checkedAt, 'full'), el('span', { class: 'quiet' }, ' ', time(checkedAt, 'ago'))],
      );
    },
  };
}

function put(node, key, content) {
  if (node.dataset.shown === `${key}`) return;
  node.dataset.shown = `${key}`;
  node.replaceChildren(...content());
}
