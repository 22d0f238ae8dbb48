// Each stream's verdict and freshness; for the lists, both directions closing in on the seam.
import { el, keyed, place, setText } from './dom.js';
import { count, plural } from './format.js';
import { time } from './time.js';

const NAMES = { parties: 'Parties', checkpoints: 'Checkpoints', ledger: 'Ledger entries' };
/** Steps between the places of two neighbours in the list of parties. */
const PLACE_STEP = 1024n;
/** Of the bar, for a hole whose size nobody knows. */
const UNKNOWN_SHARE = 0.24;
const STRETCH_SHARE_MIN = 0.02;

export function showStreams({ status, walks, stretches }) {
  const target = place('streams');
  target.classList.remove('loading');
  const items = status.streams.map((stream) => ({
    stream,
    walk: walks.find((walk) => walk.list === stream.name),
    stretches: stretches.filter((stretch) => stretch.list === stream.name),
  }));
  keyed(target, items, ({ stream }) => stream.name, makeStream);
}

export function verdictBadge(node, verdict, otherwise = 'not yet') {
  setText(node, verdict ?? otherwise);
  node.className = 'badge';
  node.dataset.is = verdict ?? 'waiting';
}

function makeStream({ stream }) {
  const [badge, rows, asOf, checked] = [el('span'), el('span', { class: 'figures' }), el('dd'), el('dd')];
  const isList = stream.name !== 'ledger';
  const [bar, told] = [el('div', { class: 'seam', role: 'img' }), el('p', { class: 'quiet ways' })];
  const node = el(
    'article',
    {},
    el('div', { class: 'head' }, el('h3', {}, NAMES[stream.name], ' ', rows), badge),
    isList && bar,
    isList && told,
    el(
      'dl',
      { class: 'facts' },
      el('div', {}, el('dt', {}, 'Complete up to'), asOf),
      el('div', {}, el('dt', {}, 'Last checked'), checked),
    ),
  );
  return {
    node,
    update: (item) => {
      const { verdict, asOfTime, asOfBlock, checkedAt } = item.stream;
      verdictBadge(badge, verdict);
      setText(rows, count(item.stream.rows));
      put(asOf, `${asOfTime} ${asOfBlock}`, () => [
        asOfTime === null ? '–' : time(asOfTime, 'full'),
        asOfBlock === null ? '' : el('span', { class: 'quiet' }, ` block ${count(asOfBlock)}`),
      ]);
      put(checked, checkedAt, () =>
        checkedAt === null
          ? ['never']
          : [time(checkedAt, 'full'), el('span', { class: 'quiet' }, ' ', time(checkedAt, 'ago'))],
      );
      if (isList) showSeam(bar, told, item);
    },
  };
}

function put(node, key, content) {
  if (node.dataset.shown === `${key}`) return;
  node.dataset.shown = `${key}`;
  node.replaceChildren(...content());
}

function showSeam(bar, told, { walk, stretches, stream }) {
  const parts = withSeam(partsOf(stretches, stream.name), walk);
  const isOpen = walk?.isOpen === true;
  keyed(
    bar,
    parts,
    ({ key }) => key,
    () => {
      const node = el('i');
      return {
        node,
        update: ({ is, share }) => {
          node.className = is;
          node.style.width = `${share * 100}%`;
        },
      };
    },
  );
  bar.dataset.is = isOpen ? 'walking' : 'resting';
  const said = sayWays(walk, parts);
  keyed(
    told,
    said,
    (_text, index) => String(index),
    () => {
      const node = el('span');
      return { node, update: (text) => setText(node, text) };
    },
  );
  bar.setAttribute('aria-label', said.join('; '));
}

/** A line each, so that a longer number moves nothing. */
function sayWays(walk, parts) {
  if (walk === undefined) return ['Never walked', '', ''];
  const holes = parts.filter(({ is }) => is.startsWith('hole')).length;
  const way = (done, from) =>
    `${plural(done?.rows ?? '0', 'row')} on ${plural(done?.pages ?? 0, 'page')} from the ${from}`;
  const name = walk.kind === 'audit' ? 'Audit' : 'Walk';
  const standing = holes === 0 ? 'both ends have met' : walk.isOpen ? 'closing in' : plural(holes, 'hole');
  return [
    `${walk.isOpen ? `${name} under way` : `Last ${name.toLowerCase()}`}: ${standing}`,
    way(walk.ways.up, 'oldest'),
    way(walk.ways.down, 'newest'),
  ];
}

/** Stretches and the holes between them, as shares of the bar. A hole among heights has a known size. */
function partsOf(stretches, list) {
  const sized = list === 'checkpoints';
  const first = stretches[0];
  const last = stretches.at(-1);
  if (first === undefined || last === undefined) return [{ key: 'hole', is: 'hole', share: 1 }];
  const parts = [];
  if (!first.hasTail)
    parts.push({ key: 'hole tail', is: 'hole', weight: sized ? BigInt(first.lo) : undefined });
  stretches.forEach((stretch, index) => {
    const before = stretches[index - 1];
    if (before !== undefined) {
      parts.push({
        key: `hole ${index}`,
        is: 'hole',
        weight: sized ? BigInt(stretch.lo) - BigInt(before.hi) : undefined,
      });
    }
    const span = BigInt(stretch.hi) - BigInt(stretch.lo);
    const is =
      stretches.length === 1 ? 'whole' : stretch.hasTail ? 'up' : stretch.hasHead ? 'down' : 'middle';
    parts.push({ key: `stretch ${is} ${index}`, is, weight: sized ? span : span / PLACE_STEP + 1n });
  });
  if (!last.hasHead) parts.push({ key: 'hole head', is: 'hole', weight: undefined });
  return shares(parts);
}

/** Where the last walk came from both ends, a line shows where they met. */
function withSeam(parts, walk) {
  const [up, down] = [Number(walk?.ways.up?.rows ?? 0), Number(walk?.ways.down?.rows ?? 0)];
  if (parts.length !== 1 || parts[0].is !== 'whole' || up === 0 || down === 0) return parts;
  return [
    { key: 'up', is: 'whole met', share: up / (up + down) },
    { key: 'down', is: 'whole', share: down / (up + down) },
  ];
}

function shares(parts) {
  const unknown = parts.filter(({ weight }) => weight === undefined).length;
  const left = Math.max(1 - unknown * UNKNOWN_SHARE, 0.3);
  const total = parts.reduce((sum, { weight }) => sum + Number(weight ?? 0n), 0);
  return parts.map(({ key, is, weight }) => ({
    key,
    is: weight === undefined ? `${is} unknown` : is,
    share:
      weight === undefined
        ? (1 - left) / unknown
        : Math.max((Number(weight) / Math.max(total, 1)) * left, STRETCH_SHARE_MIN),
  }));
}
