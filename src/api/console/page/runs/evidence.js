// Evidence as people read it: a sentence first, then what there is, then the names of what there is none of.
import { ask } from '../common/ask.js';
import { el } from '../common/dom.js';
import { bytes, count, duration, plural, shortId } from '../common/format.js';
import { time } from '../common/time.js';

const SHOWN_MAX = 12;
const DEPTH_MAX = 6;
/** Named values that fit into one line. */
const SMALL_MAX = 6;

const CANCELLED = 'It was cancelled. What it had stored stays; the next run goes on from there.';

/** @param run `{ runId, kind, state, evidence }` */
export function evidence({ runId, kind, state, evidence: found }) {
  const sentence = state === 'cancelled' ? CANCELLED : SENTENCES[kind]?.(found);
  return el(
    'div',
    { class: 'evidence' },
    found.error !== undefined &&
      el(
        'p',
        { class: 'notice bad' },
        el('strong', {}, found.error.code ?? 'error'),
        ` ${found.error.message ?? ''}`,
      ),
    sentence !== undefined && found.error === undefined && el('p', { class: 'said' }, sentence),
    tree(found, 0),
    costs(runId),
    logLines(runId),
    el(
      'details',
      {},
      el('summary', {}, 'As JSON'),
      el('pre', { tabindex: 0 }, JSON.stringify(found, undefined, 2)),
    ),
  );
}

/** What it asked of the source, and how long it took, by stage. */
function costs(runId) {
  const body = el('div', {}, 'Loading…');
  const node = el('details', {}, el('summary', {}, 'Cost by stage'), body);
  const load = async () => {
    try {
      const { stages } = await ask(`/console/runs/${runId}/costs`);
      body.replaceChildren(costTable(stages));
    } catch (error) {
      body.textContent = error.message;
    }
  };
  node.addEventListener('toggle', () => node.open && void load());
  return node;
}

function costTable(stages) {
  const sum = (name) => stages.reduce((all, stage) => all + BigInt(stage[name]), 0n);
  const row = (head, { requests, retries, bytes: size, seconds }) =>
    el(
      'tr',
      {},
      el('th', { scope: 'row' }, head),
      el(
        'td',
        { class: 'number' },
        count(requests),
        retries > 0 && el('span', { class: 'quiet' }, ` (${plural(retries, 'retry', 'retries')})`),
      ),
      el('td', { class: 'number' }, bytes(size)),
      el('td', { class: 'number' }, seconds === undefined ? '' : duration(seconds * 1_000)),
    );
  return el(
    'table',
    { class: 'costs' },
    el('caption', { class: 'hidden' }, 'Cost by stage'),
    el(
      'thead',
      {},
      el(
        'tr',
        {},
        el('th', { scope: 'col' }, 'Stage'),
        ['Requests', 'Received', 'Took'].map((name) => el('th', { scope: 'col', class: 'number' }, name)),
      ),
    ),
    el(
      'tbody',
      {},
      stages.map((stage) => row(stage.stage, stage)),
      stages.length > 1 &&
        row('all', { requests: sum('requests'), retries: sum('retries'), bytes: sum('bytes') }),
    ),
  );
}

/** Asked for when they are opened; the first page of them is what is looked for. */
function logLines(runId) {
  const body = el('pre', { tabindex: 0 }, 'Loading…');
  const node = el('details', {}, el('summary', {}, 'Log lines'), body);
  const load = async () => {
    try {
      const { lines, next } = await ask(`/mirror/runs/${runId}/logs`);
      const texts = lines.map(({ at, level, message, fields }) =>
        [at.slice(11, 19), level.padEnd(5), message, ...Object.entries(fields).map(said)].join(' '),
      );
      const more = next === null ? [] : ['… more: ledger-mirror logs ' + runId];
      body.textContent =
        texts.length === 0 ? 'No lines are kept of this run.' : [...texts, ...more].join('\n');
    } catch (error) {
      body.textContent = error.message;
    }
  };
  node.addEventListener('toggle', () => node.open && void load());
  return node;
}

function said([name, value]) {
  const text = typeof value === 'string' ? value : (value?.message ?? JSON.stringify(value));
  return `${name}=${text}`;
}

/** The source lists checkpoints twice, each held once, and `network` beside the parties. */
function listed({ rows, network, list }) {
  return `${plural(rows, 'row')}${network === 'stored' ? ' and network' : ''} listed${list === 'checkpoints' ? ' (repeats included)' : ''}`;
}

const SENTENCES = {
  sync: (found) =>
    found.rows === undefined
      ? undefined
      : `${listed(found)}, ${count(found.newRows ?? 0)} of them new, by ${plural(found.requests ?? 0, 'request')}. The pages join what was known.`,
  export: (found) =>
    `${plural(found.rows ?? 0, 'new entry', 'new entries')}, ${bytes(found.bytes ?? 0)} as CSV, in ${plural(found.segments ?? 0, 'segment')}.`,
  load: (found) =>
    `${plural(found.rows ?? 0, 'row')} of ${plural(found.segments ?? 0, 'segment')} brought into the warehouse.`,
  verify: ({ checked, problemCount }) =>
    checked &&
    `${plural(checked.segments ?? 0, 'segment')}, ${bytes(checked.objectBytes ?? 0)} as stored, compared with their sums: ${problemCount === 0 ? 'everything agrees' : plural(problemCount, 'problem')}.`,
  nightly: ({ exports, verify }) =>
    exports &&
    `${plural(exports.parties ?? 0, 'ledger')} looked after: ${plural(exports.newRows ?? 0, 'new entry', 'new entries')}, ${bytes(exports.newBytes ?? 0)} as CSV, ${count(exports.failed ?? 0)} failed. ${verify?.verdict === 'complete' ? 'All sums agree.' : ''}`,
};

/** Plain facts first, then what has parts of its own; at the top those are folded. */
function tree(value, depth) {
  const [facts, branches, nothing] = [[], [], []];
  for (const [key, inner] of Object.entries(value)) {
    if (key === 'error' && depth === 0) continue;
    if (isNothing(inner)) nothing.push(words(key));
    else if (isBranch(inner)) branches.push(branch(key, inner, depth));
    else facts.push(fact(key, leaf(key, inner, depth)));
  }
  return el(
    'div',
    {},
    facts.length > 0 && el('dl', { class: 'facts' }, facts),
    nothing.length > 0 && el('p', { class: 'hint' }, `None or zero: ${nothing.join(', ')}.`),
    branches,
  );
}

function fact(key, content) {
  return el('div', {}, el('dt', {}, words(key)), el('dd', {}, content));
}

function branch(key, value, depth) {
  const entries = Object.entries(value);
  const isSmall =
    !Array.isArray(value) && entries.length <= SMALL_MAX && entries.every(([, inner]) => !isBranch(inner));
  if (isSmall) {
    const text = entries.flatMap(([name, inner]) =>
      isNothing(inner) ? [] : [', ', `${words(name)} `, leaf(name, inner, depth)],
    );
    return el('dl', { class: 'facts' }, fact(key, text.slice(1)));
  }
  const content = Array.isArray(value) ? leaf(key, value, depth) : tree(value, depth + 1);
  if (depth > 0) return el('div', { class: 'branch' }, el('p', { class: 'quiet' }, words(key)), content);
  const { verdict } = value;
  return el(
    'details',
    { class: 'branch' },
    el(
      'summary',
      {},
      el('strong', {}, words(key)),
      ' ',
      verdict !== undefined && el('span', { class: 'badge', 'data-is': verdict }, verdict),
    ),
    content,
  );
}

function isNothing(value) {
  if (value === null || value === '' || value === 0 || value === '0' || value === false) return true;
  if (Array.isArray(value)) return value.length === 0;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

function isBranch(value) {
  return typeof value === 'object' && value !== null;
}

/** `newRows` → `new rows` */
function words(key) {
  return key.replaceAll(/([a-z0-9])([A-Z])/g, '$1 $2').toLowerCase();
}

function leaf(key, value, depth) {
  if (depth > DEPTH_MAX) return '…';
  if (Array.isArray(value)) {
    const items = value.slice(0, SHOWN_MAX).map((item) => el('li', {}, leaf(key, item, depth + 1)));
    const more = value.length - SHOWN_MAX;
    return el(
      'ul',
      { class: 'plain' },
      items,
      more > 0 && el('li', { class: 'quiet' }, `and ${count(more)} more`),
    );
  }
  if (isBranch(value)) return tree(value, depth + 1);
  const text = String(value);
  if (key === 'verdict') return el('span', { class: 'badge', 'data-is': text }, text);
  if (/^\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)$/.test(text)) return time(text, 'full');
  if (/^\d+$/.test(text)) return numeral(key, text);
  if (typeof value === 'number') return value.toPrecision(3);
  if (/^[0-9a-f]{40,}$/.test(text)) return el('span', { class: 'id', title: text }, shortId(text));
  return typeof value === 'boolean' ? 'yes' : el('span', { class: 'any' }, text);
}

function numeral(key, text) {
  if (/bytes$/i.test(key)) return bytes(text);
  return key.endsWith('Ms') ? duration(Number(text)) : count(text);
}
