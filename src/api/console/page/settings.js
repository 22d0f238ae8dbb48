// The resolved configuration. On a phone, settings that are not set are folded.
import { ask, post } from './common/ask.js';
import { action, announce, byId, el, loader, show } from './common/dom.js';

/** Longer than the mirror waits for the receiver of a notice. */
const NOTICE_TIMEOUT_MS = 30_000;
const OUTCOMES = {
  accepted: 'Accepted',
  refused: 'Refused',
  unreachable: 'Unreachable',
};

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
    showNotices(settings);
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

/** Offers a test notice, if there is a receiver. */
function showNotices(settings) {
  const target = byId('notices');
  const isSet = settings.some(
    ({ name, value }) => name === 'NOTIFY_URL' && value !== null,
  );
  if (!isSet) {
    show(
      target,
      el(
        'p.none',
        'No notice is sent to anybody: ',
        el('code', 'NOTIFY_URL'),
        ' is not set.',
      ),
    );
    return;
  }
  const results = el('ul', { 'aria-live': 'polite' });
  show(
    target,
    el(
      'p.hint',
      'A test notice goes where the notices of runs go, in the same way. Ask its receivers whether it arrived.',
    ),
    el(
      'p.readers.hint',
      'Your token can only read: it cannot send a test notice.',
    ),
    el(
      'p.deal.changes',
      action('Send a test notice', () => sendTestNotice(results)),
    ),
    results,
  );
}

async function sendTestNotice(target) {
  target.replaceChildren();
  const { results } = await post(
    'console/test-notice',
    {},
    { signal: AbortSignal.timeout(NOTICE_TIMEOUT_MS) },
  );
  target.replaceChildren(
    ...results.map(({ outcome, detail }) =>
      el(
        'li',
        el(
          'strong',
          { class: outcome === 'accepted' ? 'complete' : 'failed' },
          OUTCOMES[outcome],
        ),
        `: ${detail}`,
      ),
    ),
  );
  announce(
    results
      .map(({ outcome, detail }) => `${OUTCOMES[outcome]}: ${detail}`)
      .join('. '),
  );
}
