// Links to files of ledgers. A browser does not show the reason when a download is
// refused. The page therefore asks the mirror first, and shows a refusal next to the
// link.
import { announce, el, show } from './dom.js';

const ANSWERS_MS_MAX = 60_000;

/**
 * Makes a link ask the mirror before it downloads.
 * @param link an anchor with the address of the file, and its name as `download`
 * @param partialHref the address of the known part, offered if the whole is refused
 */
export function askFirst(link, partialHref) {
  const told = el('span.hint', { role: 'status' });
  const { href, download: name } = link;
  link.addEventListener('click', (event) => {
    event.preventDefault();
    void start(link, { href, partialHref, name }, told);
  });
  return [link, told];
}

async function start(link, { href, partialHref, name }, told) {
  if (link.getAttribute('aria-busy') === 'true') return;
  link.setAttribute('aria-busy', 'true');
  try {
    const problem = await problemOf(href);
    show(told);
    if (problem === undefined) {
      fetchFile(href, name);
      return;
    }
    show(
      told,
      ` Not all of it is known: ${problem} `,
      partialHref !== undefined &&
        el(
          'a',
          { href: partialHref, download: name },
          'Download what there is',
        ),
    );
    announce(`Not all of it is known: ${problem}`);
  } finally {
    link.removeAttribute('aria-busy');
  }
}

/**
 * Returns the mirror's reason for refusing the file, or undefined if the mirror sends
 * it. The first bytes of the answer decide; the browser's own download then fetches the
 * file.
 */
async function problemOf(href) {
  const leave = new AbortController();
  const late = setTimeout(() => leave.abort(), ANSWERS_MS_MAX);
  try {
    const response = await fetch(href, { signal: leave.signal });
    if (response.ok) return undefined;
    const body = await response.json().catch(() => undefined);
    const { details, message } = body?.error ?? body ?? {};
    return details?.[0]?.inner ?? message ?? `status ${response.status}`;
  } catch {
    return 'the mirror does not answer';
  } finally {
    clearTimeout(late);
    leave.abort();
  }
}

function fetchFile(href, name) {
  el('a', { href, download: name }).click();
}
