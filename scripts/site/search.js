/**
 * The site's search. It loads the index and the library when a reader first enters the
 * field, so pages that are only read load neither. Both are loaded as scripts, because a
 * page that was opened from a folder cannot use `fetch`.
 */
const { root } = document.currentScript.dataset;
const search = document.querySelector('search');
const form = search.querySelector('form');
const field = search.querySelector('input');
const status = search.querySelector('[role=status]');
const list = search.querySelector('ol');
const SHOWN_MAX = 12;
const FILLERS =
  /(?<![\w-])(?:an?|the|how|what|when|where|why|can|do|does|is|are|i|my|to|of|in)(?![\w-])/gi;
const NOT_LOADED =
  'The search could not be loaded. Check the connection and type again.';
const NOTHING_FOUND = 'No page has all of these words.';

/** The index, once it has been needed; a failure to load it is not kept. */
let opening;
/**
 * The number of the newest change to what is shown. A search that was begun at an older
 * number discards its results.
 */
let changes = 0;

function openIndex() {
  opening ??= loadIndex().catch((error) => {
    opening = undefined;
    throw error;
  });
  return opening;
}

async function loadIndex() {
  await Promise.all([load('minisearch.js'), load('search-index.js')]);
  const { options, index } = globalThis.SEARCH_INDEX;
  return globalThis.MiniSearch.loadJS(index, options);
}

function load(name) {
  return new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = `${root}assets/${name}`;
    script.addEventListener('load', resolve);
    script.addEventListener('error', () => reject(new Error(script.src)));
    document.head.append(script);
  });
}

/**
 * Shows the results for the words in the field, unless something else is shown in the
 * meantime.
 */
async function show() {
  changes += 1;
  const change = changes;
  const words = field.value.trim();
  if (words === '') {
    close();
    return;
  }
  const index = await openIndex().catch(() => undefined);
  if (change !== changes) return;
  if (index === undefined) {
    write(NOT_LOADED, []);
    return;
  }
  const found = index.search(withoutFillers(words));
  write(summaryOf(found.length), found.slice(0, SHOWN_MAX).map(resultOf));
}

/**
 * Removes the filler words of a question: nobody searches for them, and few sections
 * contain them.
 */
function withoutFillers(words) {
  return words.replaceAll(FILLERS, ' ').trim() || words;
}

function summaryOf(count) {
  if (count === 0) return NOTHING_FOUND;
  if (count > SHOWN_MAX) return `The best ${SHOWN_MAX} of ${count} sections`;
  return count === 1 ? '1 section' : `${count} sections`;
}

function resultOf({ id, heading, place }) {
  const link = document.createElement('a');
  link.href = `${root}${id}`;
  link.textContent = heading;
  const where = document.createElement('span');
  where.textContent = place;
  const item = document.createElement('li');
  item.append(link, ' ', where);
  return item;
}

/**
 * The box of results is never hidden, because a screen reader announces only changes to a
 * status element that was already there. The style gives an empty box no size.
 */
function write(summary, items) {
  status.textContent = summary;
  list.replaceChildren(...items);
}

function close() {
  changes += 1;
  write('', []);
}

field.addEventListener('input', () => void show());
field.addEventListener('focus', () => {
  // If this fails, the first search tries again, and reports a failure.
  openIndex().catch(() => undefined);
  void show();
});
form.addEventListener('submit', (event) => {
  event.preventDefault();
  void show().then(() => list.querySelector('a')?.click());
});
// A result on this page leads to a heading below the box.
list.addEventListener('click', ({ target }) => {
  if (target.closest('a') !== null) close();
});
search.addEventListener('focusout', ({ relatedTarget }) => {
  if (!search.contains(relatedTarget)) close();
});
search.addEventListener('keydown', ({ key }) => {
  if (key !== 'Escape') return;
  // This order matters: the field shows its results when it gets the focus.
  field.focus();
  close();
});
