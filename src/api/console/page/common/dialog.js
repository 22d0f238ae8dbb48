// The one dialog: a run's evidence, or a party's ledger. The browser keeps the focus inside, and gives it back.
import { place } from './dom.js';

let onClose;

/** @returns how to change what it shows; changes of a dialog that is gone are left out */
export function openDialog(title, content, closed) {
  const dialog = place('dialog');
  const body = place('dialog-body');
  const token = {};
  dialog.token = token;
  onClose = closed;
  place('dialog-title').textContent = title;
  body.replaceChildren(content);
  if (!dialog.open) dialog.showModal();
  place('dialog-title').focus();
  return {
    title: (text) => {
      if (dialog.token === token) place('dialog-title').textContent = text;
    },
    show: (...parts) => {
      if (dialog.token === token) body.replaceChildren(...parts);
    },
  };
}

export function closeDialog() {
  place('dialog').close();
}

export function startDialog() {
  const dialog = place('dialog');
  place('dialog-close').addEventListener('click', () => dialog.close());
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener('close', () => {
    dialog.token = undefined;
    place('dialog-body').replaceChildren();
    onClose?.();
  });
}
