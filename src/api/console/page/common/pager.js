// Rows of a table, page after page.
import { announce, el, failed, show } from './dom.js';

/**
 * Answers that were overtaken by a newer question are left out.
 * @param read gives the page behind `after`: `{ rows, next }`
 * @param told is given how many rows are shown
 * @returns how to begin anew
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
