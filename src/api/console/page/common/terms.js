// Explains the words of the glossary where they appear: on hover, on focus and on touch.
import { byId, el, setText } from './dom.js';
import { GLOSSARY } from './glossary.generated.js';

const TIP = 'term-tip';
/** How long the pointer may be between the word and its explanation. */
const LEAVE_MS = 200;
const GAP_PX = 6;
const EDGE_PX = 8;

/** The longest words come first, so that `open segment` is not read as `segment`. */
const WORDS = [...GLOSSARY.keys()].toSorted((a, b) => b.length - a.length);
const PATTERN = new RegExp(
  String.raw`(?<![\w-])(${WORDS.join('|')})(?:s|es)?(?![\w-])`,
  'gi',
);

let explained;
let leaving;

/**
 * Returns a text in which each word of the glossary becomes a button where it first
 * appears.
 */
export function explain(text) {
  const seen = new Set();
  const parts = [];
  let from = 0;
  for (const match of text.matchAll(PATTERN)) {
    const word = match[1].toLowerCase();
    if (seen.has(word)) continue;
    seen.add(word);
    parts.push(text.slice(from, match.index), term(word, match[0]));
    from = match.index + match[0].length;
  }
  parts.push(text.slice(from));
  return parts.filter((part) => part !== '');
}

function term(word, shown) {
  const button = el('button.term', { type: 'button' }, shown);
  const open = () => showTip(button, word);
  button.addEventListener('pointerenter', ({ pointerType }) => {
    if (pointerType === 'mouse') open();
  });
  button.addEventListener('focus', open);
  // Not every browser focuses a button that is touched.
  button.addEventListener('click', open);
  button.addEventListener('pointerleave', ({ pointerType }) => {
    if (pointerType === 'mouse') leave();
  });
  button.addEventListener('blur', hideTip);
  return button;
}

/** Explains the words of the page's own headings and hints. */
export function startTerms() {
  for (const node of document.querySelectorAll(
    'main h1.second, main h2, main .hint',
  )) {
    if (node.childElementCount === 0)
      node.replaceChildren(...explain(node.textContent));
  }
  const tip = byId(TIP);
  tip.addEventListener('pointerenter', () => clearTimeout(leaving));
  tip.addEventListener('pointerleave', leave);
  document.addEventListener('pointerdown', ({ target }) => {
    if (target !== explained && !tip.contains(target)) hideTip();
  });
  document.addEventListener(
    'keydown',
    (event) => {
      if (event.key !== 'Escape' || explained === undefined) return;
      hideTip();
      // Escape closes the explanation, and not the dialog that it is in.
      event.preventDefault();
    },
    true,
  );
  // The explanation stays beside its word. Focusing a word may scroll to it, so scrolling
  // must not hide the explanation.
  addEventListener('scroll', () => place(tip), true);
}

function showTip(button, word) {
  clearTimeout(leaving);
  if (explained === button) return;
  hideTip();
  explained = button;
  const tip = byId(TIP);
  setText(tip, `${word}: ${GLOSSARY.get(word)}.`);
  // Everything outside an open dialog is inert: the pointer could not reach the
  // explanation there.
  (button.closest('dialog') ?? byId('main')).append(tip);
  button.setAttribute('aria-describedby', TIP);
  tip.hidden = false;
  tip.showPopover();
  place(tip);
}

/** Puts the explanation below its word, or above it if the screen ends there. */
function place(tip) {
  if (explained === undefined) return;
  const { left, top, bottom } = explained.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = tip;
  const leftMax = document.documentElement.clientWidth - width - EDGE_PX;
  const below = bottom + GAP_PX;
  const fits = below + height <= innerHeight - EDGE_PX;
  tip.style.left = `${Math.max(EDGE_PX, Math.min(left, leftMax))}px`;
  tip.style.top = `${fits ? below : Math.max(EDGE_PX, top - GAP_PX - height)}px`;
}

function leave() {
  clearTimeout(leaving);
  // A word that has the focus keeps its explanation.
  if (document.activeElement === explained) return;
  leaving = setTimeout(hideTip, LEAVE_MS);
}

function hideTip() {
  clearTimeout(leaving);
  explained?.removeAttribute('aria-describedby');
  explained = undefined;
  const tip = byId(TIP);
  if (tip.matches(':popover-open')) tip.hidePopover();
  tip.hidden = true;
}
