// The resolved configuration. On a phone, what nobody set is folded.
import { ask } from './common/ask.js';
import { el, failed, place, show } from './common/dom.js';

export function startSettings() {
  const all = place('settings-all');
  all.addEventListener('click', () => {
    place('settings').classList.add('whole');
    all.hidden = true;
  });
}

export async function loadSettings() {
  const target = place('settings');
  try {
    const { settings } = await ask('/console/settings');
    show(target, ...settings.map(row));
    place('settings-all').textContent = `Show all ${settings.length} settings`;
    // Without a token there is no session to end.
    place('logout').hidden = !settings.some(({ name, value }) => name === 'API_TOKEN' && value !== null);
  } catch (error) {
    show(target, el('tr', {}, el('td', { colspan: 4 }, failed(error, loadSettings))));
  }
}

function row({ name, value, isSecret, origin, help }) {
  const isGiven = origin !== 'default' && origin !== 'unset';
  return el(
    'tr',
    { class: isGiven ? undefined : 'usual' },
    el('th', { scope: 'row' }, el('code', {}, name)),
    el(
      'td',
      { class: 'any', 'data-label': 'Value' },
      el(
        'span',
        {},
        value === null ? el('span', { class: 'quiet' }, '–') : el('code', {}, value),
        isSecret && value !== null && el('span', { class: 'quiet' }, ' secret'),
      ),
    ),
    el(
      'td',
      { 'data-label': 'From' },
      isGiven ? el('strong', {}, origin) : el('span', { class: 'quiet' }, origin),
    ),
    el('td', { class: 'quiet', 'data-label': 'Meaning' }, help),
  );
}
