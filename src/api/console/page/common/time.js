// Shows instants, in UTC or in the reader's own time zone, and how long ago they were.
import { byId, el } from './dom.js';
import { duration } from './format.js';

const KEY = 'ledger-mirror zone';
const LOCAL = Intl.DateTimeFormat().resolvedOptions().timeZone;
const forms = new Map();
const listeners = new Set();
let zone = localStorage.getItem(KEY) === 'local' ? LOCAL : 'UTC';
/** How far the mirror's clock is ahead of the browser's, in milliseconds. */
let aheadMs = 0;

export function setMirrorTime(iso) {
  aheadMs = Date.parse(iso) - Date.now();
}

export function mirrorNowMs() {
  return Date.now() + aheadMs;
}

export function timeZone() {
  return zone;
}

function formatter(options) {
  const key = `${zone} ${JSON.stringify(options)}`;
  if (!forms.has(key))
    forms.set(
      key,
      new Intl.DateTimeFormat('sv-SE', {
        timeZone: zone,
        hourCycle: 'h23',
        ...options,
      }),
    );
  return forms.get(key);
}

const FULL = {
  year: 'numeric',
  month: '2-digit',
  day: '2-digit',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
};
const FORMS = {
  full: (ms) => formatter(FULL).format(ms),
  minute: (ms) => formatter({ ...FULL, second: undefined }).format(ms),
  day: (ms) =>
    formatter({ year: 'numeric', month: '2-digit', day: '2-digit' }).format(ms),
  clock: (ms) =>
    formatter({ hour: '2-digit', minute: '2-digit', second: '2-digit' }).format(
      ms,
    ),
  ago: (ms) => ago(ms),
};

function ago(ms) {
  const pastMs = mirrorNowMs() - ms;
  if (pastMs < -1_000) return `in ${rounded(-pastMs)}`;
  return pastMs < 10_000 ? 'just now' : `${rounded(pastMs)} ago`;
}

function rounded(ms) {
  if (ms < 60_000) return duration(Math.round(ms / 5_000) * 5_000);
  return ms < 3_600_000
    ? `${Math.round(ms / 60_000)} min`
    : duration(Math.round(ms / 60_000) * 60_000);
}

/**
 * Formats an instant.
 * @param at RFC 3339, or milliseconds since 1970
 */
export function formatTime(at, form = 'full') {
  return FORMS[form](typeof at === 'number' ? at : Date.parse(at));
}

/**
 * Returns a `time` element. It is redrawn when the reader chooses another time zone. If
 * it shows how long ago the instant was, it is also redrawn as time passes.
 */
export function time(iso, form = 'minute') {
  if (iso === null || iso === undefined) return el('span.quiet', '–');
  const made = el('time', { datetime: iso, 'data-form': form });
  draw(made);
  return made;
}

function draw(node) {
  const ms = Date.parse(node.dateTime);
  const text = FORMS[node.dataset.form](ms);
  if (node.textContent === text) return;
  node.textContent = text;
  node.title = `${FORMS.full(ms)} ${zone}`;
}

/** Registers a listener that runs when the time zone changes. */
export function onZone(listener) {
  listeners.add(listener);
}

export function startClock() {
  const choice = byId('zone');
  choice.append(
    el('option', { value: 'UTC' }, 'UTC'),
    el('option', { value: 'local' }, LOCAL === 'UTC' ? 'local (UTC)' : LOCAL),
  );
  choice.value = zone === 'UTC' ? 'UTC' : 'local';
  choice.addEventListener('change', () => {
    zone = choice.value === 'local' ? LOCAL : 'UTC';
    localStorage.setItem(KEY, choice.value);
    for (const node of document.querySelectorAll('time[data-form]')) draw(node);
    for (const listener of listeners) listener();
  });
  setInterval(() => {
    for (const node of document.querySelectorAll('time[data-form=ago]'))
      draw(node);
  }, 1_000);
}
