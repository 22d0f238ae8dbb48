// The line to the mirror: every snapshot as it comes. A line that is lost shows, and
// heals by itself.
import { ask } from './ask.js';
import { byId, setText } from './dom.js';
import { formatTime } from './time.js';

/** The mirror speaks every five seconds, whether something changed or not. */
const SILENT_MS_MAX = 12_000;
const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 8_000;

/** Calls `take` with each snapshot, at most once a frame. */
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
    // A session that is over looks to an event stream like any other error: this one goes
    // to the login.
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
      requestAnimationFrame(draw);
    });
  };
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
