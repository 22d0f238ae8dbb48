// Builds the page. Everything that was mirrored is inserted as text, never as markup.

const SVG = 'http://www.w3.org/2000/svg';

function build(made, classes, [first, ...rest]) {
  const hasAttributes = first?.constructor === Object;
  made.classList.add(...classes);
  for (const [name, value] of Object.entries(hasAttributes ? first : {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? '' : String(value));
  }
  const content = hasAttributes ? rest : [first, ...rest];
  made.append(
    ...content
      .flat()
      .filter((part) => part !== undefined && part !== null && part !== false),
  );
  return made;
}

/**
 * Builds an element: `el('p.hint.wide', { title: 'why' }, content)`. The attributes may
 * be left out. An attribute whose value is a function becomes a listener for the event
 * with the attribute's name.
 */
export function el(selector, ...parts) {
  const [tag, ...classes] = selector.split('.');
  return build(document.createElement(tag), classes, parts);
}

export function svg(tag, ...parts) {
  return build(document.createElementNS(SVG, tag), [], parts);
}

export function byId(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no #${id}`);
  return found;
}

/**
 * Replaces "Loading…", an error or older content. The element that had the focus gets it
 * back.
 */
export function show(target, ...content) {
  const focused = target.contains(document.activeElement)
    ? document.activeElement
    : undefined;
  target.classList.remove('loading');
  target.keyed?.clear();
  target.replaceChildren(...content);
  if (focused === undefined) return;
  const again = Array.from(target.querySelectorAll(focused.localName));
  again
    .find((one) => nameOf(one) === nameOf(focused))
    ?.focus({ preventScroll: true });
}

function nameOf(node) {
  return node.ariaLabel ?? (node.title || node.textContent);
}

/**
 * Draws the result of `read`. If `read` fails, an error with a button to try again is
 * drawn instead. If a newer request was sent meanwhile, the answer to the older one is
 * dropped.
 */
export async function fill(target, read, draw, wrap = (problem) => problem) {
  const question = {};
  target.question = question;
  try {
    const found = await read();
    if (target.question === question) draw(found, target);
  } catch (error) {
    if (target.question !== question) return;
    show(
      target,
      wrap(failed(error, () => void fill(target, read, draw, wrap))),
    );
  }
}

/** Returns a function that fills the element with the given id. */
export function loader(id, read, draw, wrap) {
  return () => fill(byId(id), read, draw, wrap);
}

/**
 * Changes a text only if it differs, so that a screen reader does not repeat it and the
 * browser does not redraw it.
 */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Redraws the content only if `key` has changed. */
export function redraw(node, key, content) {
  if (node.dataset.shown === `${key}`) return;
  node.dataset.shown = `${key}`;
  node.replaceChildren(...content());
}

/**
 * Shows one child per item. A child with the same key is kept and updated, so that it
 * does not lose the focus. `make` returns `{ node, update(item) }`.
 */
export function keyed(target, items, keyOf, make) {
  target.classList.remove('loading');
  target.keyed ??= new Map();
  const known = target.keyed;
  const wanted = new Set(items.map((item, index) => keyOf(item, index)));
  const strangers = Array.from(target.childNodes).filter(
    (child) => !wanted.has(child.dataset?.key),
  );
  for (const child of strangers) child.remove();
  for (const key of known.keys()) if (!wanted.has(key)) known.delete(key);
  items.forEach((item, index) => {
    const key = keyOf(item, index);
    let entry = known.get(key);
    if (entry === undefined) {
      entry = make(item);
      entry.node.dataset.key = key;
      known.set(key, entry);
    }
    entry.update(item);
    if (target.children[index] !== entry.node)
      target.insertBefore(entry.node, target.children[index] ?? null);
  });
}

/** Returns the head of a table; `isNumber` determines which columns contain figures. */
export function tableHead(names, isNumber = () => false) {
  const cells = names.map((name, index) =>
    el(
      'th',
      { scope: 'col', class: isNumber(name, index) ? 'number' : undefined },
      name,
    ),
  );
  return el('thead', el('tr', cells));
}

/**
 * Returns a region that scrolls on its own, by keyboard too, if its content is too wide
 * or too long.
 */
export function scrolling(label, content) {
  return el(
    'div.scroll',
    { tabindex: 0, role: 'region', 'aria-label': label },
    content,
  );
}

/** Announces a change to readers who cannot see it. */
export function announce(text) {
  byId('announce').textContent = text;
}

/** Returns an error to show in place of the content, with a button to try again. */
export function failed(error, again) {
  return el(
    'p.notice.bad',
    `This could not be loaded: ${error.message}. `,
    el('button', { type: 'button', click: again }, 'Try again'),
  );
}

/**
 * Returns a button that shows the result of its action, and that cannot be pressed
 * again while the action is running.
 */
export function action(label, work, className = '') {
  const button = el('button', { type: 'button', class: className }, label);
  button.addEventListener('click', async () => {
    if (button.getAttribute('aria-disabled') === 'true') return;
    button.setAttribute('aria-disabled', 'true');
    try {
      const told = await work();
      if (told !== undefined) {
        button.textContent = told;
        announce(told);
      }
    } catch (error) {
      button.textContent = `${label}: ${error.message}`;
      announce(error.message);
    } finally {
      setTimeout(() => {
        button.textContent = label;
        button.removeAttribute('aria-disabled');
      }, 4_000);
    }
  });
  return button;
}
