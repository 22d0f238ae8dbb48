// Completes names of tables and columns in a text area, on Ctrl+Space or while a word is
// being typed.
import { el } from '../common/dom.js';
import { readTables } from './lake-tables.js';
import { textSet } from './sql-colours.js';

const CHARACTERS_MIN = 2;
const SHOWN_MAX = 8;
const KEYWORDS = [
  'select',
  'from',
  'where',
  'group by',
  'order by',
  'limit',
  'count(*)',
  'sum',
  'exact_sum',
  'in_units',
  'join',
  'using',
];

export function completeNames(area) {
  const list = el('ul.completion', {
    role: 'listbox',
    'aria-label': 'Names',
    hidden: true,
  });
  area.after(list);
  area.setAttribute('aria-autocomplete', 'list');
  let names = KEYWORDS;
  let chosen = 0;
  const load = async () => {
    try {
      const { tables } = await readTables();
      const columns = tables.flatMap((table) =>
        table.columns.map(({ name }) => name),
      );
      names = [
        ...new Set([
          ...tables.map(({ name }) => name),
          ...columns,
          ...KEYWORDS,
        ]),
      ];
    } catch {
      // Without the tables, only keywords are completed.
    }
  };
  void load();
  const word = () =>
    /[a-z_][\w]*$/i.exec(area.value.slice(0, area.selectionStart))?.[0] ?? '';
  const close = () => {
    list.hidden = true;
  };
  const take = (name) => {
    const at = area.selectionStart;
    area.setRangeText(name, at - word().length, at, 'end');
    textSet(area);
    close();
    area.focus();
  };
  const open = (isAsked) => {
    const typed = word().toLowerCase();
    const found = names
      .filter((name) => name.startsWith(typed) && name !== typed)
      .slice(0, SHOWN_MAX);
    list.hidden =
      found.length === 0 || (!isAsked && typed.length < CHARACTERS_MIN);
    chosen = 0;
    list.replaceChildren(
      ...found.map((name, index) =>
        el(
          'li',
          {
            role: 'option',
            'aria-selected': String(index === 0),
            mousedown: (event) => {
              event.preventDefault();
              take(name);
            },
          },
          name,
        ),
      ),
    );
  };
  area.addEventListener('input', () => open(false));
  area.addEventListener('blur', close);
  area.addEventListener('keydown', (event) => {
    if (event.key === ' ' && event.ctrlKey) {
      event.preventDefault();
      open(true);
    } else if (list.hidden) return;
    else if (event.key === 'Escape') close();
    else if (event.key === 'Tab') {
      event.preventDefault();
      take(list.children[chosen].textContent);
    } else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault();
      const count = list.childElementCount;
      chosen = (chosen + (event.key === 'ArrowDown' ? 1 : count - 1)) % count;
      [...list.children].forEach((item, index) =>
        item.setAttribute('aria-selected', String(index === chosen)),
      );
    }
  });
}
