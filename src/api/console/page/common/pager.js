// Shows the rows of a table page by page.
import { announce, el, failed, show } from './dom.js';

/**
 * Loads pages into a table. If a newer request was sent meanwhile, the answer to the
 * older one is dropped.
 * @param read returns the page after `after`: `{ rows, next }`
 * @param told receives the number of rows shown
 * @returns a function that starts again from the first page
 */
export function pager({ body, more, read, told, nothing }) {
  let question = 0;
  let following;
  const load = async (after) => {
    question += 1;
    const mine = question;
    const put = (rows) =>
      after === undefined ? show(body, ...rows) : body.append(...rows);
    body.querySelector('.problem')?.remove();
    try {
      const { rows, next } = await read(after);
      if (mine !== question) return;
      put(
        rows.length > 0
          ? rows
          : [el('tr', el('td.none', { colspan: 6 }, nothing()))],
      );
      more.hidden = next === null;
      following = next;
      told(rows.length === 0 ? 0 : body.childElementCount);
    } catch (error) {
      if (mine !== question) return;
      put([
        el(
          'tr.problem',
          el(
            'td',
            { colspan: 6 },
            failed(error, () => void load(after)),
          ),
        ),
      ]);
      announce(error.message);
    }
  };
  more.addEventListener('click', () => void load(following));
  return () => load();
}
