// Answers SQL or ready questions about the lake with a table, with a chart if the result
// suits one, or with a file.
import { assetUnits } from '../common/assets.js';
import { asJson, ask, once, post, send } from '../common/ask.js';
import { completeNames } from './complete.js';
import { action, announce, byId, el, show } from '../common/dom.js';
import { duration, plural } from '../common/format.js';
import { resultChart } from './result-chart.js';
import { namesPanel } from './names.js';
import { historyField, remember } from './query-history.js';
import { linkOf, linkedQuestion } from './query-link.js';
import { isLonger, resultTable, tabled } from './result.js';
import { textSet, withColours } from './sql-colours.js';

/** How long the mirror lets a statement run. */
const STATEMENT_SECONDS_MAX = 60;
/** Longer than a statement may take, so that the reader sees the mirror's own message. */
const TIMEOUT_MS = (STATEMENT_SECONDS_MAX + 10) * 1000;
const LAST = 'ledger-mirror query';
const KEYS = 'Ctrl+Enter runs it; Ctrl+Space completes names.';
const EXAMPLE =
  'select transfer_type, count(*) as entries from ledger_entries where is_counted group by 1 order by 2 desc';
const TIME_HINT = '2026-01-31, -30d, yesterday';
const MONTH_HINT = '2026-01';
const ID_HINT = 'beginning of an id';
const OPTIONS = {
  since: { label: 'since', hint: TIME_HINT },
  until: { label: 'until (not included)', hint: TIME_HINT },
  month: { label: 'or one month', hint: MONTH_HINT },
  at: { label: 'at', hint: '2026-01-31T12:00:00Z' },
  party: { label: 'party', hint: ID_HINT },
  asset: { label: 'asset', hint: ID_HINT },
};
/** A query on a small table that contains every asset. */
const ASSETS = 'select distinct asset_id from daily_flows order by 1';

export function startQuery() {
  const sql = el('textarea', {
    id: 'query-sql',
    rows: 4,
    spellcheck: 'false',
    autocomplete: 'off',
    'aria-label': 'SQL',
    'aria-describedby': 'query-keys',
  });
  sql.value = sessionStorage.getItem(LAST) ?? EXAMPLE;
  const question = el(
    'select',
    { id: 'query-question' },
    el('option', { value: '' }, 'your own SQL'),
  );
  const options = el('span.choices');
  const editor = el('div.editor', withColours(sql), namesPanel(sql));
  const keys = el('p.hint', { id: 'query-keys' }, KEYS);
  const result = el('div', { id: 'query-result', 'aria-live': 'polite' });
  const run = el('button.primary', { type: 'button' }, 'Run');
  const asked = () => askedFor(sql, question, options);
  run.addEventListener('click', () => void answer(asked, run, result));
  sql.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) run.click();
  });
  byId('query').replaceChildren(
    el(
      'p.choices',
      el('label.choice', 'Question', question),
      options,
      historyField(),
    ),
    editor,
    keys,
    el(
      'p.deal',
      run,
      fileButton('CSV', 'csv', asked),
      fileButton('Parquet', 'parquet', asked),
    ),
    result,
  );
  completeNames(sql);
  void loadQuestions(question, { options, sql, editor, keys, result });
}

async function loadQuestions(question, { options, sql, editor, keys, result }) {
  try {
    const { questions } = await ask('console/questions');
    question.append(
      ...questions.map(({ name }) => el('option', { value: name }, name)),
    );
    question.addEventListener('change', () => {
      const chosen = questions.find(({ name }) => name === question.value);
      editor.hidden = chosen !== undefined;
      keys.textContent =
        chosen === undefined
          ? KEYS
          : `${chosen.title[0].toUpperCase()}${chosen.title.slice(1)}.`;
      // Removes the answer to the previous question. An answer that is still on its way
      // is dropped when it arrives.
      show(result);
      options.replaceChildren(...(chosen?.parameters ?? []).map(optionField));
    });
    const follow = () => followLink(question, { questions, options, sql });
    addEventListener('hashchange', follow);
    follow();
  } catch (error) {
    announce(error.message);
  }
}

/**
 * Fills the form with the question that the address names. The reader has to run the
 * question: merely opening a link from elsewhere must not run a query.
 */
function followLink(question, { questions, options, sql }) {
  const linked = linkedQuestion(location.hash);
  if (linked === undefined) return;
  const isKnown = questions.some(({ name }) => name === linked.question);
  if (linked.sql === undefined && !isKnown) return;
  question.value = linked.question ?? '';
  question.dispatchEvent(new Event('change'));
  if (linked.sql !== undefined) {
    sql.value = linked.sql;
    textSet(sql);
  }
  for (const field of options.querySelectorAll('input'))
    field.value = linked.options[field.name] ?? '';
}

function optionField(name) {
  const { label, hint } = OPTIONS[name];
  const list = name === 'asset' ? 'query-assets' : undefined;
  return el(
    'label.choice',
    label,
    el('input', {
      name,
      list,
      placeholder: hint,
      autocomplete: 'off',
      spellcheck: 'false',
      size: 15,
    }),
    list !== undefined && assetList(list),
  );
}

function assetList(id) {
  const list = el('datalist', { id });
  const fill = (ids) =>
    list.replaceChildren(...ids.map((value) => el('option', { value })));
  // The list is only a convenience: an id can be typed without it.
  void assetIds().then(fill, () => undefined);
  return list;
}

/**
 * Reads the ids of the assets, only once: a reader who switches between questions would
 * otherwise occupy every connection to the lake.
 */
const assetIds = once(async () => {
  const { rows } = await post('console/query', { sql: ASSETS });
  return rows.map(({ asset_id: id }) => id);
});

function askedFor(sql, question, options) {
  if (question.value === '') {
    if (sql.value.trim() === '')
      throw new Error(
        'Nothing was asked yet: write SQL, or choose a question.',
      );
    sessionStorage.setItem(LAST, sql.value);
    return { sql: sql.value };
  }
  const given = [...options.querySelectorAll('input')].filter(
    ({ value }) => value.trim() !== '',
  );
  return {
    question: question.value,
    options: Object.fromEntries(
      given.map(({ name, value }) => [name, value.trim()]),
    ),
  };
}

async function answer(asked, run, result) {
  if (run.getAttribute('aria-disabled') === 'true') return;
  run.setAttribute('aria-disabled', 'true');
  const stop = new AbortController();
  const clock = el('span');
  const target = el(
    'div',
    el(
      'p.deal',
      el('span.quiet', 'Asking the lake… ', clock),
      el('button', { type: 'button', click: () => stop.abort() }, 'Stop'),
    ),
  );
  show(result, target);
  const ticking = startClockOf(clock);
  try {
    const question = asked();
    // The address of the page is a link to the question, and survives a reload.
    history.replaceState(undefined, '', linkOf(question));
    remember(question);
    const [answered, assets] = await Promise.all([
      // The mirror ends the statement when the request is aborted.
      post('console/query', question, {
        signal: AbortSignal.any([stop.signal, AbortSignal.timeout(TIMEOUT_MS)]),
      }),
      assetUnits(),
    ]);
    if (!target.isConnected) return;
    const { isCut, tookMs, units } = answered;
    const { columns, rows } = tabled(answered.rows, assets);
    const hint = el('p.hint');
    const shown =
      rows.length === 0
        ? []
        : [
            ...resultChart(columns, rows, {
              units,
              assets,
              isReady: question.question !== undefined,
            }),
            ...resultTable(columns, rows),
          ];
    show(target, hint, ...shown);
    const isScrolled = isLonger(target.querySelector('.result'));
    const below = isScrolled && !isCut ? ', scroll for all' : '';
    const amount = isCut
      ? `First ${plural(rows.length, 'row')}; CSV and Parquet have them all`
      : plural(rows.length, 'row');
    const told = `${amount}${below}, ${duration(tookMs)}`;
    hint.textContent = told;
    announce(told);
  } catch (error) {
    // The message keeps DuckDB's line breaks, because the mark in its last line points at
    // the error in the line above.
    const told = stop.signal.aborted
      ? el('p.quiet', 'Stopped.')
      : el('pre.notice.bad', { tabindex: 0 }, error.message);
    show(target, told);
    if (stop.signal.aborted) announce('Stopped');
  } finally {
    clearInterval(ticking);
    run.removeAttribute('aria-disabled');
  }
}

/** Shows how long the answer has taken, from the first second on. */
function startClockOf(clock) {
  const startMs = performance.now();
  return setInterval(() => {
    const seconds = Math.floor((performance.now() - startMs) / 1_000);
    clock.textContent = `${seconds} s of at most ${STATEMENT_SECONDS_MAX} s`;
  }, 1_000);
}

function fileButton(label, format, asked) {
  return action(label, async () => {
    const response = await send(`console/query/file?format=${format}`, {
      ...asJson(asked()),
      timeoutMs: TIMEOUT_MS,
    });
    const url = URL.createObjectURL(await response.blob());
    const [, name] = /filename="(.+)"/.exec(
      response.headers.get('content-disposition'),
    );
    el('a', { href: url, download: name }).click();
    URL.revokeObjectURL(url);
    return `${label} saved`;
  });
}
