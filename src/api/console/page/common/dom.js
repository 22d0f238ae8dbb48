// Building the page. Whatever was mirrored goes in as text, never as markup.

const SVG = 'http://www.w3.org/2000/svg';

function fill(made, attributes, content) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? '' : String(value));
  }
  made.append(...content.flat().filter((part) => part !== undefined && part !== null && part !== false));
  return made;
}

/** An element; a function among the attributes listens to the event of its name. */
export function el(tag, attributes = {}, ...content) {
  return fill(document.createElement(tag), attributes, content);
}

export function svg(tag, attributes = {}, ...content) {
  return fill(document.createElementNS(SVG, tag), attributes, content);
}

export function place(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no #${id}`);
  return found;
}

/** Shows content where "Loading…", an error or older content stood. What had the focus has it again. */
export function show(target, ...content) {
  const focused = target.contains(document.activeElement) ? document.activeElement : undefined;
  target.classList.remove('loading');
  target.replaceChildren(...content);
  if (focused === undefined) return;
  const again = Array.from(target.querySelectorAll(focused.localName));
  again.find((one) => nameOf(one) === nameOf(focused))?.focus();
}

function nameOf(node) {
  return node.ariaLabel ?? (node.title || node.textContent);
}

/** Changes a text only where it differs, so that nothing that stays is spoken or drawn again. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * One child for each item, kept over updates by its key: what has the focus keeps it.
 * `make` gives `{ node, update(item) }`.
 */
export function keyed(target, items, keyOf, make) {
  const known = (target.keyed ??= new Map());
  const wanted = new Set(items.map((item, index) => keyOf(item, index)));
  const strangers = Array.from(target.childNodes).filter((child) => !wanted.has(child.dataset?.key));
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

/** Says something to those who cannot see what changed. */
export function announce(text) {
  place('announce').textContent = text;
}

/** An error where the content would be, with a way to try again. */
export function failed(error, again) {
  return el(
    'p',
    { class: 'notice bad' },
    `This could not be loaded: ${error instanceof Error ? error.message : String(error)}. `,
    el('button', { type: 'button', click: again }, 'Try again'),
  );
}

/** A button that says what became of it, and cannot be pressed twice. */
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
