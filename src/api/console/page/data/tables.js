// What tables there are: columns with their meaning, rows, size, age, and how to read each from elsewhere.
import { ask } from '../common/ask.js';
import { action, el, failed, keyed, place, show } from '../common/dom.js';
import { bytes, count, plural } from '../common/format.js';
import { time } from '../common/time.js';

export async function loadTables() {
  const target = place('tables');
  try {
    const { tables } = await ask('/console/tables');
    if (tables.length === 0) {
      show(
        target,
        el('p', { class: 'none' }, 'The lake has no tables yet: the first nightly run makes them.'),
      );
      target.keyed?.clear();
      return;
    }
    if (target.classList.contains('loading')) show(target);
    keyed(target, tables, ({ name }) => name, makeTable);
  } catch (error) {
    target.keyed?.clear();
    show(target, failed(error, loadTables));
  }
}

function makeTable() {
  const [head, body] = [el('summary'), el('div')];
  let key = '';
  return {
    node: el('details', { class: 'lake-table' }, head, body),
    update: (table) => {
      const now = JSON.stringify(table);
      if (now === key) return;
      key = now;
      head.replaceChildren(
        el('strong', {}, el('code', {}, table.name)),
        ' ',
        el(
          'span',
          { class: 'quiet figures' },
          `${plural(table.rows, 'row')}, ${bytes(table.bytes)}, `,
          el('span', { class: 'extra' }, `version ${count(table.version)}, `),
          time(table.committedAt, 'ago'),
        ),
      );
      body.replaceChildren(el('p', {}, table.comment), columns(table), ...lines(table));
    },
  };
}

function columns({ columns: all }) {
  return el(
    'div',
    { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Columns' },
    el(
      'table',
      { class: 'cards' },
      el(
        'thead',
        {},
        el(
          'tr',
          {},
          ['Column', 'Type', 'Meaning'].map((name) => el('th', { scope: 'col' }, name)),
        ),
      ),
      el(
        'tbody',
        {},
        all.map(({ name, type, comment }) =>
          el(
            'tr',
            {},
            el('th', { scope: 'row' }, el('code', {}, name)),
            el('td', {}, el('code', {}, type)),
            el('td', {}, comment),
          ),
        ),
      ),
    ),
  );
}

function lines({ access }) {
  return access.map(({ engine, line }) =>
    el(
      'div',
      { class: 'copy' },
      el('span', { class: 'quiet' }, engine),
      el('code', { class: 'any' }, line),
      action('Copy', async () => {
        await navigator.clipboard.writeText(line);
        return 'Copied';
      }),
    ),
  );
}
