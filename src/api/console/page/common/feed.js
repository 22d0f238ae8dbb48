// The connection to the mirror, which delivers each snapshot. A lost connection is shown,
// and restored without the reader's help.
import { ask } from './ask.js';
import { byId, setText } from './dom.js';
import { formatTime } from './time.js';

/**
 * A connection without a message for this long counts as lost: the mirror sends one every
 * five seconds, even if nothing has changed.
 */
const SILENT_MS_MAX = 12_000;
const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 8_000;

/**
 * Calls `take` with the latest snapshot, at most once per frame. A hidden tab gets no
 * frames, so its snapshots are drawn immediately: the title shows whether the mirror is
 * complete.
 */
export function follow(take) {
  let source;
  let heardAtMs = performance.now();
  let last;
  let retryMs = RETRY_MS_MIN;
  let isDrawing = false;
  let retry;

  const draw = () => {
    isDrawing = false;
    take(last);
  };
  const lose = () => {
    source?.close();
    clearTimeout(retry);
    tell(
      'lost',
      last === undefined
        ? 'No answer from the mirror. Trying again…'
        : `Connection lost. What you see is as of ${formatTime(last.now, 'clock')}. Trying again…`,
    );
    retry = setTimeout(open, retryMs);
    retryMs = Math.min(retryMs * 2, RETRY_MS_MAX);
    // An event stream reports an expired session like any other error. This request
    // detects an expired session, and sends the browser to the login page.
    ask('mirror/status').catch(() => undefined);
  };
  const open = () => {
    heardAtMs = performance.now();
    source = new EventSource('console/events');
    source.addEventListener('error', lose);
    source.addEventListener('message', ({ data }) => {
      heardAtMs = performance.now();
      retryMs = RETRY_MS_MIN;
      last = JSON.parse(data);
      tell('live', 'Live');
      if (isDrawing) return;
      isDrawing = true;
      if (document.hidden) draw();
      else requestAnimationFrame(draw);
    });
  };
  // A frame requested before the tab was hidden comes only when the tab is shown again,
  // so draw without waiting for it.
  document.addEventListener('visibilitychange', () => {
    if (document.hidden && isDrawing) draw();
  });
  setInterval(() => {
    if (
      source?.readyState !== EventSource.CLOSED &&
      performance.now() - heardAtMs > SILENT_MS_MAX
    )
      lose();
  }, 1_000);
  open();
}

function tell(state, text) {
  document.body.dataset.connection = state;
  setText(byId('connection'), text);
}
