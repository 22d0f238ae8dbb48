// The console: asks for the state every few seconds and shows it. Everything that was mirrored goes
// into the page as text, never as markup.
// @ts-check

const POLL_MS = 5_000;
const TIMEOUT_MS = 10_000;
const RUNS_SHOWN = 25;

/** @typedef {string | number | Node} Content */

/**
 * @param {string} tag
 * @param {Record<string, string>} attributes
 * @param {...Content} content
 */
function element(tag, attributes = {}, ...content) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...content.map((part) => (typeof part === 'number' ? String(part) : part)));
  return made;
}

/** @param {string} id */
function place(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no #${id}`);
  return found;
}

/** @param {string | null} text */
function instant(text) {
  if (text === null) return element('span', {}, '–');
  const shown = text.slice(0, 19).replace('T', ' ');
  return element('time', { datetime: text, title: new Date(text).toLocaleString() }, shown);
}

/** @param {string} digits A decimal integer of any length. */
function count(digits) {
  return digits.replaceAll(/\B(?=(\d{3})+$)/g, '\u202F');
}

/** @param {string | null} verdict @param {string} [otherwise] */
function verdictMark(verdict, otherwise = 'not yet') {
  return element('strong', { class: verdict ?? '' }, verdict ?? otherwise);
}

/** @param {any} status */
function showStatus(status) {
  place('source').textContent = status.sourceUrl ?? '';
  const sentence = place('sentence');
  // Screen readers speak what is replaced: only a sentence that changed is.
  if (sentence.textContent !== status.sentence) sentence.textContent = status.sentence;
  sentence.className = status.whole ? 'complete' : 'incomplete';
  place('attention').replaceChildren(
    ...status.attention.map((/** @type {any} */ item) =>
      element(
        'li',
        {},
        element('p', {}, element('strong', {}, item.what), ` — ${item.why}`),
        element('p', {}, item.todo),
      ),
    ),
  );
  place('streams').replaceChildren(
    ...status.streams.map((/** @type {any} */ stream) =>
      element(
        'tr',
        {},
        element('th', { scope: 'row' }, stream.name),
        element('td', {}, verdictMark(stream.verdict)),
        element('td', { class: 'number' }, count(stream.rows)),
        element(
          'td',
          {},
          instant(stream.asOfTime),
          stream.asOfBlock === null ? '' : ` · block ${count(stream.asOfBlock)}`,
        ),
        element('td', {}, instant(stream.checkedAt)),
      ),
    ),
  );
  const { ledger } = status;
  const facts = [
    ['Ledgers', ledger.parties],
    ['Segments', ledger.segments],
    ['Bytes of CSV', ledger.bytes],
    ['Segments not loaded yet', ledger.notLoaded],
    ['Set aside', ledger.setAside],
    ['Open runs', status.openRuns],
  ];
  place('ledger').replaceChildren(
    ...facts.map(([name, value]) =>
      element('div', {}, element('dt', {}, name), element('dd', {}, count(value))),
    ),
  );
}

/** @param {any} run */
function runRow(run) {
  const from = Date.parse(run.startedAt ?? run.queuedAt);
  const seconds =
    run.finishedAt === null ? undefined : Math.round((Date.parse(run.finishedAt) - from) / 1_000);
  const evidence = element(
    'details',
    { 'data-run': run.runId },
    element('summary', {}, 'show'),
    element('pre', {}, JSON.stringify(run.evidence, undefined, 2)),
  );
  return element(
    'tr',
    {},
    element('td', {}, instant(run.startedAt ?? run.queuedAt)),
    element('td', {}, run.kind),
    element('td', { class: 'id' }, run.subject),
    element('td', {}, verdictMark(run.verdict, run.state)),
    element('td', { class: 'number' }, seconds === undefined ? '–' : `${seconds} s`),
    element('td', {}, evidence),
  );
}

/** @param {readonly any[]} runs */
function showRuns(runs) {
  const body = place('runs');
  // What was opened stays open.
  const open = new Set(
    [...body.querySelectorAll('details[open]')].map((found) => found.getAttribute('data-run')),
  );
  const rows = runs.map(runRow);
  for (const row of rows) {
    const details = row.querySelector('details');
    if (details !== null && open.has(details.getAttribute('data-run'))) details.open = true;
  }
  if (rows.length === 0) rows.push(element('tr', {}, element('td', { colspan: '6' }, 'No run yet.')));
  body.replaceChildren(...rows);
}

/** @param {string} path */
async function ask(path) {
  const response = await fetch(path, {
    headers: { accept: 'application/json' },
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (response.status === 401) location.assign('/login');
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return response.json();
}

async function refresh() {
  const connection = place('connection');
  try {
    const [status, { runs }] = await Promise.all([
      ask('/mirror/status'),
      ask(`/mirror/runs?limit=${RUNS_SHOWN}`),
    ]);
    showStatus(status);
    showRuns(runs);
    connection.textContent = '';
  } catch {
    connection.textContent = 'No answer from the mirror; what you see may be old. Trying again…';
  }
}

/** Asks again and again while somebody looks. */
async function poll() {
  if (!document.hidden) await refresh();
  setTimeout(() => void poll(), POLL_MS);
}

document.addEventListener('visibilitychange', () => {
  if (!document.hidden) void refresh();
});
void poll();
