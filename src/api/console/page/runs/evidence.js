// Shows evidence for readers: first a sentence, then the values that are not empty or
// zero, then the names of the empty and zero values.
import { ask } from '../common/ask.js';
import { el, tableHead } from '../common/dom.js';
import { bytes, count, duration, plural, shortId } from '../common/format.js';
import { explain } from '../common/terms.js';
import { time } from '../common/time.js';
import { labelOf, valueInWords } from './evidence-labels.js';

const SHOWN_MAX = 12;
const DEPTH_MAX = 6;
/** Maximum number of named values on one line. */
const SMALL_MAX = 6;

const CANCELLED =
  'It was cancelled. What it had stored stays; the next run goes on from there.';

/**
 * Returns the evidence of a run.
 * @param run `{ runId, kind, state, evidence }`
 */
export function evidence({ runId, kind, state, evidence: found }) {
  const sentence = state === 'cancelled' ? CANCELLED : SENTENCES[kind]?.(found);
  return el(
    'div.evidence',
    found.error !== undefined &&
      el(
        'p.notice.bad',
        el('strong', found.error.code ?? 'error'),
        ` ${found.error.message ?? ''}`,
      ),
    sentence !== undefined &&
      found.error === undefined &&
      el('p.said', explain(sentence)),
    tree(kind, found, 0),
    folded('Cost by stage', el('div', 'Loading…'), () => costTable(runId)),
    folded('Log lines', el('pre', { tabindex: 0 }, 'Loading…'), () =>
      logLines(runId),
    ),
    el(
      'details',
      el('summary', 'All evidence as JSON'),
      el('pre', { tabindex: 0 }, JSON.stringify(found, undefined, 2)),
    ),
  );
}

/** Returns a folded part, which is loaded when it is opened. */
function folded(title, body, load) {
  const node = el('details', el('summary', title), body);
  node.addEventListener('toggle', async () => {
    if (!node.open) return;
    try {
      body.replaceChildren(await load());
    } catch (error) {
      body.textContent = error.message;
    }
  });
  return node;
}

/** Returns a table of what each stage requested from the source, and how long it took. */
async function costTable(runId) {
  const { stages } = await ask(`console/runs/${runId}/costs`);
  const sum = (name) =>
    stages.reduce((all, stage) => all + BigInt(stage[name]), 0n);
  const row = (head, { requests, retries, bytes: size, seconds }) =>
    el(
      'tr',
      el('th', { scope: 'row' }, head),
      el(
        'td.number',
        count(requests),
        retries > 0 &&
          el('span.quiet', ` (${plural(retries, 'retry', 'retries')})`),
      ),
      el('td.number', bytes(size)),
      el('td.number', seconds === undefined ? '' : duration(seconds * 1_000)),
    );
  return el(
    'table.costs',
    el('caption.hidden', 'Cost by stage'),
    tableHead(
      ['Stage', 'Requests', 'Received', 'Took'],
      (name) => name !== 'Stage',
    ),
    el(
      'tbody',
      stages.map((stage) => row(stage.stage, stage)),
      stages.length > 1 &&
        row('all', {
          requests: sum('requests'),
          retries: sum('retries'),
          bytes: sum('bytes'),
        }),
    ),
  );
}

/** Returns the first page of the log, which is what readers look for. */
async function logLines(runId) {
  const { lines, next } = await ask(`mirror/runs/${runId}/logs`);
  const texts = lines.map(({ at, level, message, fields }) =>
    [
      at.slice(11, 19),
      level.padEnd(5),
      message,
      ...Object.entries(fields).map(said),
    ].join(' '),
  );
  const more = next === null ? [] : [`… more: ledger-mirror logs ${runId}`];
  return texts.length === 0
    ? 'No log lines of this run have been kept.'
    : [...texts, ...more].join('\n');
}

function said([name, value]) {
  const text =
    typeof value === 'string'
      ? value
      : (value?.message ?? JSON.stringify(value));
  return `${name}=${text}`;
}

/**
 * Describes how many rows the source listed. The source may list a checkpoint more than
 * once, but the mirror stores it once. `network` is counted separately from the
 * parties.
 */
function listed({ rows, network, list }) {
  return `${plural(rows, 'row')}${network === 'stored' ? ' and network' : ''} listed${list === 'checkpoints' ? ' (repeats included)' : ''}`;
}

/**
 * Describes what was published. An open segment is published again together with its new
 * entries, so not all of its rows are new.
 */
function published(rows = 0, replaced = 0) {
  const grown = BigInt(rows) - BigInt(replaced);
  const told = plural(grown < 0n ? 0n : grown, 'new entry', 'new entries');
  return BigInt(replaced) === 0n
    ? told
    : `${told} (${plural(rows, 'row')} published, ${count(replaced)} replaced)`;
}

const SENTENCES = {
  sync: (found) =>
    found.rows === undefined
      ? undefined
      : `${listed(found)}, ${count(found.newRows ?? 0)} of them new, by ${plural(found.requests ?? 0, 'request')}. The pages join what was known.`,
  export: (found) =>
    `${published(found.rows, found.replacedRows)}, ${bytes(found.bytes ?? 0)} as CSV, in ${plural(found.segments ?? 0, 'segment')}.`,
  load: (found) =>
    `${plural(found.rows ?? 0, 'row')} of ${plural(found.segments ?? 0, 'segment')} brought into the warehouse.`,
  verify: ({ checked, problemCount }) =>
    checked &&
    `${plural(checked.segments ?? 0, 'segment')}, ${bytes(checked.objectBytes ?? 0)} as stored, compared with their sums: ${problemCount === 0 ? 'everything agrees' : plural(problemCount, 'problem')}.`,
  nightly: ({ exports, verify }) =>
    exports &&
    `${plural(exports.parties ?? 0, 'ledger')} requested: ${published(exports.newRows, exports.replacedRows)}, ${bytes(exports.newBytes ?? 0)} as CSV, ${count(exports.failed ?? 0)} failed. ${verify?.verdict === 'complete' ? 'All sums agree.' : ''}`,
};

/**
 * Shows plain values first, then nested values, which are folded at the top level. Keys
 * without a label are shown only in the JSON.
 * @param part the key under which the evidence contains this part
 */
function tree(part, value, depth) {
  const facts = [];
  const branches = [];
  const nothing = [];
  for (const [key, inner] of Object.entries(value)) {
    const label = labelOf(part, key);
    if (label === undefined || (key === 'error' && depth === 0)) continue;
    if (isNothing(inner)) nothing.push(label);
    else if (isBranch(inner)) branches.push(branch(label, key, inner, depth));
    else facts.push(fact(label, leaf(key, inner, depth)));
  }
  return el(
    'div',
    facts.length > 0 && el('dl.facts', facts),
    nothing.length > 0 && el('p.hint', `None: ${nothing.join(', ')}.`),
    branches,
  );
}

function fact(label, content) {
  return el('div', el('dt', explain(label)), el('dd', content));
}

function branch(label, key, value, depth) {
  const entries = Object.entries(value);
  const isSmall =
    !Array.isArray(value) &&
    entries.length <= SMALL_MAX &&
    entries.every(([, inner]) => !isBranch(inner));
  if (isSmall) {
    const text = entries.flatMap(([name, inner]) => {
      const inWords = labelOf(key, name);
      return isNothing(inner) || inWords === undefined
        ? []
        : [', ', `${inWords} `, leaf(name, inner, depth)];
    });
    return text.length === 0
      ? undefined
      : el('dl.facts', fact(label, text.slice(1)));
  }
  const content = Array.isArray(value)
    ? leaf(key, value, depth)
    : tree(key, value, depth + 1);
  if (depth > 0) return el('div.branch', el('p.quiet', label), content);
  const { verdict } = value;
  return el(
    'details.branch',
    el(
      'summary',
      el('strong', label),
      ' ',
      verdict !== undefined &&
        el('span.badge', { 'data-is': verdict }, verdict),
    ),
    content,
  );
}

function isNothing(value) {
  if (
    value === null ||
    value === '' ||
    value === 0 ||
    value === '0' ||
    value === false
  )
    return true;
  if (Array.isArray(value)) return value.length === 0;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

function isBranch(value) {
  return typeof value === 'object' && value !== null;
}

function leaf(key, value, depth) {
  if (depth > DEPTH_MAX) return '…';
  if (Array.isArray(value)) {
    const items = value
      .slice(0, SHOWN_MAX)
      .map((item) => el('li', leaf(key, item, depth + 1)));
    const more = value.length - SHOWN_MAX;
    return el(
      'ul.plain',
      items,
      more > 0 && el('li.quiet', `and ${count(more)} more`),
    );
  }
  if (isBranch(value)) return tree(key, value, depth + 1);
  const text = String(value);
  if (key === 'verdict')
    return el('span.badge', { 'data-is': text }, explain(text));
  if (/^\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)$/.test(text))
    return time(text, 'full');
  if (key === 'secondsPerExport')
    return duration(Math.round(Number(text) * 1_000));
  if (/^\d+$/.test(text)) return numeral(key, text);
  if (typeof value === 'number') return value.toPrecision(3);
  if (/^[0-9a-f]{40,}$/.test(text))
    return el('span.id', { title: text }, shortId(text));
  if (typeof value === 'boolean') return 'yes';
  return el('span.any', valueInWords(key, text));
}

function numeral(key, text) {
  if (/bytes$/i.test(key)) return bytes(text);
  return key.endsWith('Ms') ? duration(Number(text)) : count(text);
}
