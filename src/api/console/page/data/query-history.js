// The reader's last questions, kept in this browser alone. Choosing one fills the form.
import { el } from '../common/dom.js';
import { linkOf } from './query-link.js';

const KEY = 'ledger-mirror questions';
const KEPT_MAX = 20;
const SHOWN_MAX = 60;
let list;

/** Returns a choice of the last questions; it is hidden until there is one. */
export function historyField() {
  list = el('select', {
    'aria-label': 'Asked before',
    change: () => {
      if (list.value !== '') location.hash = list.value;
      list.value = '';
    },
  });
  const field = el('label.choice', 'Asked before', list);
  fillList();
  return field;
}

/** Puts a question first, and drops the oldest. */
export function remember(question) {
  const link = linkOf(question);
  const others = read().filter((kept) => linkOf(kept) !== link);
  const kept = [question, ...others].slice(0, KEPT_MAX);
  try {
    localStorage.setItem(KEY, JSON.stringify(kept));
  } catch {
    // A browser that stores nothing, or is full, still asks the question.
  }
  fillList();
}

function fillList() {
  const kept = read();
  list.replaceChildren(
    el('option', { value: '' }, 'choose one'),
    ...kept.map((question) =>
      el('option', { value: linkOf(question) }, nameOf(question)),
    ),
  );
  list.parentElement.hidden = kept.length === 0;
}

function nameOf({ sql, question, options = {} }) {
  const text =
    sql ??
    [
      question,
      ...Object.entries(options).map(([name, value]) => `${name} ${value}`),
    ].join(' ');
  const line = text.replaceAll(/\s+/g, ' ').trim();
  return line.length > SHOWN_MAX ? `${line.slice(0, SHOWN_MAX)}…` : line;
}

/** What another program or version has stored there is taken as nothing. */
function read() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? '[]');
    return kept.filter(
      ({ sql, question }) =>
        typeof sql === 'string' || typeof question === 'string',
    );
  } catch {
    return [];
  }
}
