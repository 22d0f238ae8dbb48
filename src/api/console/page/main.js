// The console. One event stream updates the data that changes all the time; all other
// data is requested when something has changed.
import { loadQuarantine, startQuarantine } from './runs/quarantine.js';
import { redrawCharts } from './common/charts.js';
import { closeDialog, startDialog } from './common/dialog.js';
import { announce, byId } from './common/dom.js';
import { loadLines } from './runs/exports.js';
import { follow } from './common/feed.js';
import { showStatusSummary, takeQuarantined } from './status/status-summary.js';
import { drawHistory, loadHistory } from './runs/history.js';
import {
  loadFirstNight,
  showFirstNight,
  showFirstNightLink,
} from './status/first-night.js';
import { loadRole } from './common/access.js';
import { showNow } from './status/now.js';
import { takeLive } from './common/orders.js';
import { loadParties, refreshParties, startParties } from './data/parties.js';
import { openParty } from './data/party.js';
import { startStatement } from './data/statement.js';
import { startQuery } from './data/query.js';
import { loadRuns, openRun, startRuns } from './runs/runs.js';
import { loadSettings, startSettings } from './settings.js';
import { startButton, takeLists } from './common/start.js';
import { showStreams } from './status/streams.js';
import { startTerms } from './common/terms.js';
import { loadTables } from './data/tables.js';
import { onZone, setMirrorTime, startClock } from './common/time.js';

const THEME = 'ledger-mirror theme';
/**
 * Minimum time between two requests for data that is not in the stream, however much is
 * published. It is longer than the time for which a shared answer is cached.
 */
const RELOAD_MS = 2_000;
/**
 * The actions of each view: at its start, with each snapshot, and when something has
 * changed.
 */
const VIEWS = {
  '': {
    name: 'status',
    take: (snapshot) => {
      showFirstNightLink(snapshot);
      showNow(snapshot);
      showStreams(snapshot);
    },
  },
  'first-night': {
    name: 'first-night',
    title: 'First night',
    take: showFirstNight,
    load: loadFirstNight,
  },
  data: {
    name: 'data',
    start: () => {
      startQuery();
      startParties();
    },
    load: () => Promise.all([loadTables(), loadParties()]),
    reload: () => {
      refreshParties();
      return loadTables();
    },
  },
  // The statement has a verdict of its own: the mirror's mark could be mistaken for it.
  statement: { name: 'statement', start: startStatement, isUnmarked: true },
  runs: {
    name: 'runs',
    start: () => {
      startRuns();
      startQuarantine();
      onZone(() => {
        drawHistory();
        void loadLines();
      });
    },
    load: () =>
      Promise.all([loadRuns(), loadHistory(), loadLines(), loadQuarantine()]),
  },
  settings: { name: 'settings', start: startSettings, load: loadSettings },
};
const view = viewOf(location);
const TITLE = `${view.title ?? `${view.name[0].toUpperCase()}${view.name.slice(1)}`} · ledger-mirror`;

let revision;
let isReloading = false;

function take(snapshot) {
  setMirrorTime(snapshot.now);
  takeQuarantined(snapshot.quarantined);
  takeLive(snapshot.live);
  takeLists(snapshot.status.streams);
  showStatusSummary(snapshot);
  if (view.isUnmarked !== true)
    document.title = `${snapshot.status.complete ? '✓' : '!'} ${TITLE}`;
  view.take?.(snapshot);
  if (snapshot.revision === revision || isReloading) return;
  const isFirst = revision === undefined;
  revision = snapshot.revision;
  if (isFirst) return;
  isReloading = true;
  setTimeout(() => {
    isReloading = false;
    void (view.reload ?? view.load)?.();
  }, RELOAD_MS);
}

/**
 * Returns the view for a path. Only the last part of the path decides, because a proxy
 * may put other parts before it.
 */
function viewOf({ pathname }) {
  return VIEWS[pathname.split('/').at(-1)] ?? VIEWS[''];
}

function showView() {
  document.title = TITLE;
  for (const part of document.querySelectorAll('.view'))
    part.hidden = part.dataset.view !== view.name;
  for (const link of document.querySelectorAll('.top nav a')) {
    if (viewOf(link) === view) link.setAttribute('aria-current', 'page');
  }
}

function startTheme() {
  const choice = byId('theme');
  const use = (theme) => {
    document.documentElement.dataset.theme = theme;
    redrawCharts();
  };
  choice.value = localStorage.getItem(THEME) ?? 'auto';
  use(choice.value);
  choice.addEventListener('change', () => {
    localStorage.setItem(THEME, choice.value);
    use(choice.value);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener(
    'change',
    redrawCharts,
  );
}

const LINK = /^#(party|run)\/(.+)$/;
const LINKED = { party: openParty, run: openRun };

/** Opens the party or the run that a link names; closing it returns to the page. */
function startLinks() {
  const leave = () => {
    if (!LINK.test(decoded(location.hash))) return;
    history.replaceState(
      undefined,
      '',
      `${location.pathname}${location.search}`,
    );
  };
  const go = () => {
    const [, kind, id] = LINK.exec(decoded(location.hash)) ?? [];
    // After Back, the address may no longer name anything, so the dialog is closed.
    if (kind === undefined) closeDialog();
    else void LINKED[kind](id, leave);
  };
  addEventListener('hashchange', go);
  go();
}

/** Decodes the fragment; a fragment that is cut off or mistyped counts as empty. */
function decoded(hash) {
  try {
    return decodeURIComponent(hash);
  } catch {
    return '';
  }
}

/**
 * After Back, the browser may show the page as it was. After a logout, that would show
 * data to the next person, so reload the page, which then requires a login.
 */
function startReturns() {
  addEventListener('pageshow', ({ persisted }) => {
    if (persisted) location.reload();
  });
}

function start() {
  showView();
  void loadRole();
  startTheme();
  startClock();
  startDialog();
  startTerms();
  startReturns();
  for (const button of document.querySelectorAll('.run-now'))
    button.replaceWith(startButton('Run now'));
  view.start?.();
  follow(take);
  startLinks();
  onZone(redrawCharts);
  // Paints the first screen before the content below it is loaded.
  setTimeout(
    () =>
      void Promise.resolve(view.load?.()).catch((error) =>
        announce(error.message),
      ),
    0,
  );
}

start();
