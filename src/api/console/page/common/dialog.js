// The only dialog: it shows a run's evidence, or a party's ledger. The browser keeps the
// focus inside, and restores it afterwards.
import { byId, el, fill, show } from './dom.js';

let onClose;
/** The element that had the focus when the dialog was opened. */
let opener;

/**
 * Opens the dialog.
 * @param read returns `{ title, parts }`: the content, and the title if it is not known
 *   earlier
 * @param closed called when the dialog is closed
 */
export function openDialog(title, read, closed) {
  const [dialog, heading, body] = ['dialog', 'dialog-title', 'dialog-body'].map(
    byId,
  );
  onClose = closed;
  heading.textContent = title;
  show(body, el('p.loading', 'Loading…'));
  if (!dialog.open) {
    opener = document.activeElement;
    dialog.showModal();
  }
  heading.focus();
  return fill(body, read, (found) => {
    heading.textContent = found.title ?? title;
    show(body, ...found.parts);
  });
}

export function closeDialog() {
  byId('dialog').close();
}

export function startDialog() {
  const dialog = byId('dialog');
  byId('dialog-close').addEventListener('click', closeDialog);
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog) closeDialog();
  });
  dialog.addEventListener('close', () => {
    const body = byId('dialog-body');
    body.question = undefined;
    show(body);
    onClose?.();
    focusOpener();
  });
}

/**
 * Returns the focus to the link that opened the dialog, if the list that contains the
 * link has been redrawn in the meantime. The browser only knows the old link.
 */
function focusOpener() {
  const href = opener?.getAttribute('href');
  if (opener?.isConnected || !href) return;
  document.querySelector(`a[href="${CSS.escape(href)}"]`)?.focus();
}
