// Shows the editor's SQL in colour. The text area is still what the reader types into and
// what a screen reader reads, but its text is transparent, and the same text lies behind
// it in colour.
import { el } from '../common/dom.js';

/** The parts of a statement that have a colour, by Prism's names. */
const COLOURED = new Set([
  'boolean',
  'comment',
  'function',
  'keyword',
  'number',
  'string',
]);

/** Any name before a parenthesis is a function, unless it is one of these keywords. */
const FUNCTION =
  /\b(?!(?:all|and|any|as|between|by|case|else|exists|filter|from|having|in|is|join|like|limit|not|on|or|over|select|then|using|values|when|where|with)\b)[a-z_]\w*(?=\s*\()/i;

let grammar;

/** Prism's SQL grammar, changed where DuckDB differs from MySQL. */
function duckDb({ languages }) {
  grammar ??= languages.extend('sql', {
    // In DuckDB, `#` and `//` do not begin a comment, and a backslash does not escape
    // anything.
    comment: { pattern: /--.*|\/\*[\s\S]*?\*\//, greedy: true },
    variable: /\$\w+/,
    string: { pattern: /'(?:[^']|'')*'|\$\$[\s\S]*?\$\$/, greedy: true },
    function: FUNCTION,
    identifier: { pattern: /"(?:[^"]|"")*"/, greedy: true },
  });
  return grammar;
}

/**
 * Returns the parts of a statement in order, each with its text and its kind; text
 * without a kind has none.
 */
export function partsOf(sql, prism) {
  return prism
    .tokenize(sql, duckDb(prism))
    .map((token) =>
      typeof token === 'string'
        ? { text: token }
        : { text: token.content, kind: kindOf(token) },
    );
}

/** Prism counts words such as `and` among the operators. */
function kindOf({ type, content }) {
  if (type === 'operator') return /^\w/.test(content) ? 'keyword' : undefined;
  return COLOURED.has(type) ? type : undefined;
}

/**
 * Puts the coloured text behind a text area, and returns both in one element. Without
 * Prism, whose script may have failed to load, the text area is left as it is.
 */
export function withColours(area) {
  const prism = globalThis.Prism;
  if (prism === undefined) return el('div.sql', area);
  const paint = el('div.paint', { 'aria-hidden': 'true' });
  const draw = () => {
    paint.replaceChildren(
      ...partsOf(area.value, prism).map(({ text, kind }) =>
        kind === undefined ? text : el(`span.sql-${kind}`, text),
      ),
      // An empty last line has a height only if a character follows it.
      '\n',
    );
    follow();
  };
  const follow = () => {
    paint.scrollTop = area.scrollTop;
    paint.scrollLeft = area.scrollLeft;
  };
  // Text set by code causes no `input` event. Such code calls `textSet`, which dispatches
  // `change`.
  area.addEventListener('input', draw);
  area.addEventListener('change', draw);
  area.addEventListener('scroll', follow);
  draw();
  return el('div.sql.painted', paint, area);
}

/** Notifies the listeners of a text area that code has set its text. */
export function textSet(area) {
  area.dispatchEvent(new Event('change'));
}
