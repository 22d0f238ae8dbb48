// Lists the tables of the lake: their columns with their meaning, rows, size and age,
// and how to read each table with other tools.
import { ask } from '../common/ask.js';
import { copyButton } from '../common/copy.js';
import {
  el,
  keyed,
  loader,
  redraw,
  scrolling,
  show,
  tableHead,
} from '../common/dom.js';
import { bytes, count, plural } from '../common/format.js';
import { time } from '../common/time.js';

export const loadTables = loader(
  'tables',
  () => ask('console/tables'),
  ({ tables }, target) => {
    if (tables.length > 0) keyed(target, tables, ({ name }) => name, makeTable);
    else
      show(
        target,
        el(
          'p.none',
          'The lake has no tables yet: the first nightly run makes them.',
        ),
      );
  },
);

function makeTable() {
  const head = el('summary');
  const body = el('div');
  return {
    node: el('details.lake-table', head, body),
    update: (table) => {
      const { name, comment, rows, bytes: size, version, committedAt } = table;
      redraw(head, JSON.stringify([rows, size, version, committedAt]), () => [
        el('strong', el('code', name)),
        ' ',
        el(
          'span.quiet.figures',
          `${plural(rows, 'row')}, ${bytes(size)}, `,
          el('span.extra', `version ${count(version)}, `),
          time(committedAt, 'ago'),
        ),
      ]);
      redraw(body, '', () => [
        el('p', comment),
        columns(table),
        ...lines(table),
      ]);
    },
  };
}

function columns({ columns: all }) {
  const rows = all.map(({ name, type, comment }) =>
    el(
      'tr',
      el('th', { scope: 'row' }, el('code', name)),
      el('td', el('code', type)),
      el('td', comment),
    ),
  );
  return scrolling(
    'Columns',
    el(
      'table.cards',
      tableHead(['Column', 'Type', 'Meaning']),
      el('tbody', rows),
    ),
  );
}

function lines({ access }) {
  return access.map(({ engine, line }) =>
    el(
      'div.copy',
      el('span.quiet', engine),
      el('code.any', line),
      copyButton(line, `the line for ${engine}`),
    ),
  );
}
