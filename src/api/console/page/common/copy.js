// Copies ids and commands to the clipboard.
import { action, el } from './dom.js';

/** Returns a button that copies a string. */
export function copyButton(text, name = text) {
  const button = action('Copy', () => copy(text, button));
  button.setAttribute('aria-label', `Copy ${name}`);
  return button;
}

/** Returns an id, shortened, as a button that copies the whole id. */
export function copyableId(id, shown) {
  const button = action(shown, () => copy(id, button), 'copy-id');
  button.title = id;
  button.setAttribute('aria-label', `${shown}, copy the whole id`);
  return button;
}

async function copy(text, button) {
  // Browsers offer the clipboard only over https and on localhost.
  if (navigator.clipboard !== undefined)
    await navigator.clipboard.writeText(text);
  else copySelected(text, button);
  return 'Copied';
}

/** Copies by selecting the text, which browsers allow over plain HTTP too. */
function copySelected(text, button) {
  const area = el('textarea.hidden', { 'aria-hidden': 'true', tabindex: -1 });
  area.value = text;
  // While a modal dialog is open, nothing outside it can be selected, so the text goes
  // next to the button.
  button.after(area);
  area.select();
  const isCopied = document.execCommand('copy');
  area.remove();
  button.focus();
  if (!isCopied) throw new Error('this browser does not let a page copy');
}
