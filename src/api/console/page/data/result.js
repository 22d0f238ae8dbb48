// A result as a table that stays fast, because rows are only added as the reader scrolls.
import { copyableId } from '../common/copy.js';
import { el, scrolling, tableHead } from '../common/dom.js';
import { count, grouped, shortId } from '../common/format.js';
import { findAmounts } from '../shared/amounts.js';

const ROWS_AT_ONCE = 100;
const NUMBER = /^-?\d{1,45}(?:\.\d+)?$/;
/** Columns whose numbers are names or positions, and not amounts. */
const NAMED =
  /(?:^|_)(?:id|year|month|day|hour|week|quarter|epoch|block|height|pos|version)$/i;
const CODED = /^-?0\d/;
const TIME = /^\d{4}-\d\d(?:-\d\d(?:[ T]|$)|$)/;

/**
 * Converts rows that are objects to columns, `{ name, heading, kind, isAmount, amount }`,
 * and to rows that are arrays of values. A column has a kind only if all of its values
 * are of that kind; otherwise it is text. `amount` formats the value of a row, and is
 * present only if the column has amounts of assets.
 * @param assets the known assets by id
 */
export function tabled(found, assets) {
  const names = Object.keys(found[0] ?? {});
  const rows = found.map((row) => names.map((name) => row[name]));
  // Only text counts as an exact amount; a number may be the result of a division.
  const amounts = findAmounts(names, rows, assets, (index) =>
    rows.every((row) => row[index] === null || typeof row[index] === 'string'),
  );
  const columns = names.map((name, index) => {
    const values = rows.map((row) => row[index]);
    const kind = kindOf(values);
    const isAmount =
      kind === 'number' &&
      !NAMED.test(name) &&
      !values.some((value) => CODED.test(value));
    const amount = amounts.get(index);
    const heading = amount?.heading ?? name;
    return { name, heading, kind, isAmount, amount };
  });
  return { columns, rows };
}

function kindOf(values) {
  const given = values.filter((value) => value !== null);
  const are = (pattern) =>
    given.length > 0 && given.every((value) => pattern.test(String(value)));
  if (are(NUMBER)) return 'number';
  return are(TIME) ? 'time' : 'text';
}

/**
 * Returns the table, below a field that filters its rows.
 * @param rows arrays of JSON values; amounts are text, so that no digit is lost
 */
export function resultTable(columns, rows) {
  const head = tableHead(
    columns.map(({ heading }) => heading),
    (_name, index) =>
      columns[index].kind === 'number' || columns[index].amount !== undefined,
  );
  const body = el('tbody');
  const region = scrolling('Result', el('table.cards', head, body));
  region.classList.add('result');
  let sorted = rows;
  let shown = rows;
  let next = 0;
  const add = () => {
    const part = shown.slice(next, next + ROWS_AT_ONCE);
    body.append(
      ...part.map((row) =>
        el('tr', ...columns.map((column, index) => cell(row, index, column))),
      ),
    );
    next += part.length;
  };
  const filter = filterField(columns, rows.length, (matches) => {
    shown = sorted.filter(matches);
    next = 0;
    body.replaceChildren();
    add();
    region.scrollTop = 0;
    return shown.length;
  });
  makeSortable(head, columns, (index, isDescending) => {
    sorted = sortedBy(columns, rows, { index, isDescending });
    filter.apply();
  });
  region.addEventListener('scroll', () => {
    if (
      region.scrollTop + region.clientHeight * 2 > region.scrollHeight &&
      next < shown.length
    )
      add();
  });
  add();
  return [filter.node, region];
}

function sortedBy(columns, rows, { index, isDescending }) {
  const compare = columns[index].kind === 'number' ? byNumber : byText;
  return rows.toSorted((a, b) => {
    // Rows without a value stay last in both directions.
    if (a[index] === null || b[index] === null)
      return Number(a[index] === null) - Number(b[index] === null);
    const order = compare(String(a[index]), String(b[index]));
    return isDescending ? -order : order;
  });
}

/**
 * Returns the field, and `apply`, which filters again.
 * @param show receives the function that decides which rows are shown, and returns their
 *   number
 */
function filterField(columns, total, show) {
  const told = el('span.quiet', { role: 'status' });
  const field = el('input', {
    type: 'search',
    autocomplete: 'off',
    spellcheck: 'false',
  });
  const apply = () => {
    const wanted = field.value.trim().toLowerCase();
    const found = show((row) => hasText(row, columns, wanted));
    told.textContent =
      wanted === '' ? '' : `${count(found)} of ${count(total)} shown`;
  };
  field.addEventListener('input', apply);
  const node = el(
    'p.choices.filter',
    el('label.choice', 'Show rows that contain', field),
    told,
  );
  node.hidden = total < 2;
  return { node, apply };
}

/** Whether a value of the row contains the text, as it is stored or as it is shown. */
function hasText(row, columns, wanted) {
  if (wanted === '') return true;
  return row.some((value, index) => {
    if (value === null) return false;
    const text = textOf(value).toLowerCase();
    const shown =
      columns[index].amount?.format(row).toLowerCase() ?? grouped(text);
    return text.includes(wanted) || shown.includes(wanted);
  });
}

function textOf(value) {
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/**
 * Turns each heading into a button that sorts by its column; pressing it again reverses
 * the order.
 */
function makeSortable(head, columns, sortBy) {
  const headings = [...head.querySelectorAll('th')];
  headings.forEach((heading, index) => {
    const sort = () => {
      // Readers who sort by a number usually want the largest first.
      const isFirstDown = columns[index].kind === 'number';
      const was = heading.getAttribute('aria-sort');
      const isDescending = was === null ? isFirstDown : was === 'ascending';
      for (const other of headings) other.removeAttribute('aria-sort');
      heading.setAttribute(
        'aria-sort',
        isDescending ? 'descending' : 'ascending',
      );
      sortBy(index, isDescending);
    };
    const { textContent } = heading;
    heading.replaceChildren(
      el('button.sort', { type: 'button', click: sort }, textContent),
    );
  });
}

function byText(a, b) {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

/** Compares decimal text of any length. */
function byNumber(a, b) {
  const [wholeA] = a.split('.');
  const [wholeB] = b.split('.');
  const difference = BigInt(wholeA) - BigInt(wholeB);
  if (difference !== 0n) return difference < 0n ? -1 : 1;
  return Number(a) - Number(b);
}

/** Whether the region has more rows than it can show without scrolling. */
export function isLonger(region) {
  return region !== null && region.scrollHeight > region.clientHeight;
}

function cell(row, index, column) {
  const value = row[index];
  const label = { 'data-label': column.heading };
  if (value === null) return el('td.quiet', { ...label }, '–');
  const text = textOf(value);
  const isId = /^[0-9a-f]{64}$/.test(text);
  const exact = column.isAmount ? grouped(text) : text;
  const isNumber = column.kind === 'number' || column.amount !== undefined;
  return el(
    'td',
    { class: isNumber ? 'number' : 'any', ...label },
    isId
      ? copyableId(text, shortId(text))
      : (column.amount?.format(row) ?? exact),
  );
}
