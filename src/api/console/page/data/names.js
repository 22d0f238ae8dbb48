// The names of tables and columns beside the editor. Choosing a name inserts it.
import { el, fill, show } from '../common/dom.js';
import { readTables } from './lake-tables.js';
import { textSet } from './sql-colours.js';

/** Below this width the names would leave the editor no room, so they are folded. */
const BESIDE = '(min-width: 60rem)';

/** Returns the panel; `area` is the editor that names are inserted into. */
export function namesPanel(area) {
  const list = el(
    'div.names',
    {
      tabindex: 0,
      role: 'region',
      'aria-label': 'Names of tables and columns',
    },
    el('p.quiet', 'Loading…'),
  );
  const panel = el(
    'details.names-panel',
    { open: matchMedia(BESIDE).matches },
    el('summary', 'Tables and columns'),
    list,
  );
  void fillNames(list, area);
  return panel;
}

function fillNames(list, area) {
  return fill(list, readTables, ({ tables }) =>
    show(
      list,
      ...(tables.length === 0
        ? [el('p.none', 'The lake has no tables yet.')]
        : tables.map((table) => tableNames(table, area))),
    ),
  );
}

function tableNames({ name, comment, columns }, area) {
  return el(
    'details',
    el('summary', el('code', name)),
    el('p.hint', comment),
    inserter(area, name, 'table'),
    ...columns.map((column) =>
      inserter(area, column.name, column.type, column.comment),
    ),
  );
}

function inserter(area, name, type, comment) {
  return el(
    'button.insert',
    {
      type: 'button',
      title: comment,
      click: () => insert(area, name),
    },
    el('code', name),
    ' ',
    el('span.quiet', type),
    el('span.hidden', ', insert'),
  );
}

/** Inserts a name at the cursor, with a space in front if it follows a word. */
function insert(area, name) {
  const before = area.value.slice(0, area.selectionStart);
  const space = /[\w)"']$/.test(before) ? ' ' : '';
  area.setRangeText(
    `${space}${name}`,
    area.selectionStart,
    area.selectionEnd,
    'end',
  );
  textSet(area);
  area.focus();
}
