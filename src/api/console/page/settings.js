// The resolved configuration. On a phone, settings that are not set are folded.
import { ask } from './common/ask.js';
import { byId, el, loader, show } from './common/dom.js';

export function startSettings() {
  const all = byId('settings-all');
  all.addEventListener('click', () => {
    byId('settings').classList.add('whole');
    all.hidden = true;
  });
}

export const loadSettings = loader(
  'settings',
  () => ask('console/settings'),
  ({ settings }, target) => {
    show(target, ...settings.map(row));
    byId('settings-all').textContent = `Show all ${settings.length} settings`;
  },
  (problem) => el('tr', el('td', { colspan: 4 }, problem)),
);

function row({ name, value, isSecret, origin, help }) {
  const isGiven = origin !== 'default' && origin !== 'unset';
  return el(
    'tr',
    { class: isGiven ? undefined : 'usual' },
    el('th', { scope: 'row' }, el('code', name)),
    el(
      'td.any',
      { 'data-label': 'Value' },
      el(
        'span',
        value === null ? el('span.quiet', '–') : el('code', value),
        isSecret && value !== null && el('span.quiet', ' secret'),
      ),
    ),
    el(
      'td',
      { 'data-label': 'From' },
      isGiven ? el('strong', origin) : el('span.quiet', origin),
    ),
    el('td.quiet', { 'data-label': 'Meaning' }, help),
  );
}
