// The reader's last questions, kept only in this browser. Choosing one fills the form.
import { el } from '../common/dom.js';
import { linkOf } from './query-link.js';

const KEY = 'ledger-mirror questions';
const KEPT_MAX = 20;
const SHOWN_MAX = 60;
let list;

/**
 * Returns a field to choose one of the last questions; it is hidden until there is one.
 */
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

/**
 * Puts a question at the top of the list, and drops the oldest one if there are too many.
 */
export function remember(question) {
  const link = linkOf(question);
  const others = read().filter((kept) => linkOf(kept) !== link);
  const kept = [question, ...others].slice(0, KEPT_MAX);
  try {
    localStorage.setItem(KEY, JSON.stringify(kept));
  } catch {
    // Even if the browser stores nothing, or has no room left, the question is asked.
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

/**
 * Reads the list. Ignores values of any other form, which another program or version may
 * have stored under the same key.
 */
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
