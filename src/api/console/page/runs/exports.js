// Shows ledgers as bars over time: which ranges are closed, open, being requested, or
// quarantined.
import { ask } from '../common/ask.js';
import { el, loader, show, svg } from '../common/dom.js';
import { plural } from '../common/format.js';
import { formatTime, mirrorNowMs, time } from '../common/time.js';
import { partyName } from '../common/orders.js';

const WIDTH = 1_000;
const HEIGHT = 16;
const TICKS = 4;
const DAY_MS = 86_400_000;

const NOTHING =
  'No ledger was exported yet. The nightly run does it; or find a party under Data and export it now.';

export const loadLines = loader(
  'lines',
  () => ask('console/lines'),
  ({ lines }, target) =>
    show(
      target,
      ...(lines.length === 0 ? [el('p.none', NOTHING)] : told(lines)),
    ),
);

/**
 * Returns only a sentence if all is well. If any export is in progress or in quarantine,
 * everything is drawn immediately.
 */
function told(lines) {
  if (lines.some(({ state }) => state !== 'published'))
    return [legend(), ...draw(lines)];
  const drawn = el('details', el('summary', 'Freshness over time'));
  drawn.addEventListener(
    'toggle',
    () => drawn.append(legend(), ...draw(lines)),
    {
      once: true,
    },
  );
  const latest = lines
    .map(({ covered }) => covered.at(-1)?.to)
    .filter(Boolean)
    .toSorted();
  return [
    el(
      'p.quiet',
      'No export is under way and none is in quarantine. ',
      ...(latest[0] === undefined
        ? []
        : ['The latest ledgers are known up to ', time(latest[0]), '.']),
    ),
    drawn,
  ];
}

const LEGEND = [
  ['closed', 'closed, with entries'],
  ['empty', 'closed, without entries'],
  ['open', 'open: replaced by the next export'],
  ['flight', 'in flight'],
  ['quarantined', 'in quarantine'],
];

function legend() {
  return el(
    'ul.legend',
    { 'aria-label': 'Legend' },
    LEGEND.map(([is, meaning]) => el('li', { class: is }, meaning)),
  );
}

/**
 * Returns the range of time to draw. Ledgers are known from the beginning of time, but
 * the drawing begins with their first entries.
 */
function domainOf(lines) {
  const nowMs = mirrorNowMs();
  const starts = lines
    .flatMap(({ firstEntryAt, covered }) => [
      firstEntryAt,
      ...covered.slice(1).map(({ from }) => from),
    ])
    .filter((at) => at !== null)
    .map((at) => Date.parse(at));
  // Before the first load, the times of the first entries are unknown.
  const fromMs =
    starts.length === 0
      ? nowMs - 7 * DAY_MS
      : Math.min(...starts, nowMs - DAY_MS / 24);
  const spare = (nowMs - fromMs) * 0.02;
  return { fromMs: fromMs - spare, toMs: nowMs + spare, nowMs };
}

function draw(lines) {
  const domain = domainOf(lines);
  const list = el(
    'ol',
    lines.map((line) => row(line, domain)),
  );
  return [list, axis(domain)];
}

function axis({ fromMs, toMs }) {
  const form = toMs - fromMs > 3 * DAY_MS ? 'day' : 'minute';
  const ticks = Array.from({ length: TICKS }, (_, index) => {
    const at = new Date(fromMs + ((toMs - fromMs) * index) / (TICKS - 1));
    return el('li', time(at.toISOString(), form));
  });
  return el('ol.axis', { 'aria-hidden': 'true' }, ticks);
}

function row(line, domain) {
  const scale = (ms) =>
    ((Math.min(Math.max(ms, domain.fromMs), domain.toMs) - domain.fromMs) /
      (domain.toMs - domain.fromMs)) *
    WIDTH;
  const block = (fromMs, toMs, is) => {
    const x = scale(fromMs);
    return svg('rect', {
      x,
      y: 0,
      width: Math.max(scale(toMs) - x, 2),
      height: HEIGHT,
      class: is,
    });
  };
  const knownToMs = Math.max(
    domain.fromMs,
    ...line.covered.map(({ to }) => Date.parse(to)),
  );
  const parts = line.covered.map(({ from, to, open, rows }) =>
    block(Date.parse(from), Date.parse(to), stateOfRange(open, rows)),
  );
  if (line.state === 'in flight')
    parts.push(block(knownToMs, domain.nowMs, 'flight'));
  if (line.state === 'quarantined')
    parts.push(block(knownToMs, domain.nowMs, 'quarantined'));
  const said = sayLine(line);
  return el(
    'li',
    el('span.who', partyName(line.partyId)),
    svg(
      'svg',
      {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
        preserveAspectRatio: 'none',
        role: 'img',
        'aria-label': said,
      },
      svg('title', said),
      parts,
    ),
    stateOf(line),
  );
}

function stateOf({ state, covered }) {
  if (state === 'published')
    return el('span.quiet.state', 'to ', time(covered.at(-1)?.to, 'ago'));
  return el(
    'span.badge',
    { 'data-is': state === 'in flight' ? 'live' : 'incomplete' },
    state,
  );
}

function sayLine({ covered, state }) {
  const last = covered.at(-1);
  if (last === undefined) return `Nothing is known yet; ${state}`;
  const segments = covered.filter(({ rows }) => rows !== null).length;
  return `${plural(segments, 'segment')}, known up to ${formatTime(last.to)}${last.open ? ', the last one open' : ''}; ${state}`;
}

function stateOfRange(open, rows) {
  if (open) return 'open';
  return rows === null ? 'empty' : 'closed';
}
