// The console: one line of snapshots moves what moves; the rest is asked for when something has changed.
import { loadAside, startAside } from './aside.js';
import { redrawCharts } from './charts.js';
import { startDialog } from './dialog.js';
import { announce, place } from './dom.js';
import { loadLines } from './exports.js';
import { follow } from './feed.js';
import { nightButton, showGlance, takeAsides } from './glance.js';
import { drawHistory, loadHistory } from './history.js';
import { showNow } from './now.js';
import { takeLive } from './orders.js';
import { loadParties, refreshParties, startParties } from './parties.js';
import { openParty } from './party.js';
import { loadRuns, startRuns } from './runs.js';
import { loadSettings } from './settings.js';
import { showStreams } from './streams.js';
import { onZone, setMirrorTime, startClock } from './time.js';

const THEME = 'ledger-mirror theme';
/** However much is published, what is not on the line is asked for no more often; longer than any answer is kept. */
const RELOAD_MS = 2_000;

let revision;
let isReloading = false;

function take(snapshot) {
  setMirrorTime(snapshot.now);
  takeAsides(snapshot.quarantined);
  takeLive(snapshot.live);
  showGlance(snapshot);
  showNow(snapshot);
  showStreams(snapshot);
  if (snapshot.revision === revision || isReloading) return;
  const isFirst = revision === undefined;
  revision = snapshot.revision;
  if (isFirst) return;
  isReloading = true;
  setTimeout(() => {
    isReloading = false;
    void reload();
  }, RELOAD_MS);
}

async function reload() {
  refreshParties();
  await Promise.all([loadRuns(), loadLines(), loadAside(), loadHistory()]);
}

function startTheme() {
  const choice = place('theme');
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
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redrawCharts);
}

/** A link to a party opens its ledger; closing it leaves the page where it was. */
function startLinks() {
  const go = () => {
    const partyId = /^#party\/([0-9a-z]+)$/i.exec(location.hash)?.[1];
    if (partyId !== undefined)
      void openParty(partyId, () => history.replaceState(undefined, '', location.pathname));
  };
  addEventListener('hashchange', go);
  go();
}

function start() {
  startTheme();
  startClock();
  startDialog();
  startRuns();
  startParties();
  startAside();
  place('night').replaceWith(nightButton('Run the night now', ''));
  follow(take);
  startLinks();
  onZone(() => {
    drawHistory();
    redrawCharts();
    void loadLines();
  });
  // The first screen goes first; what lies below it follows.
  setTimeout(
    () =>
      void Promise.all([
        loadLines(),
        loadHistory(),
        loadRuns(),
        loadParties(),
        loadAside(),
        loadSettings(),
      ]).catch((error) => announce(error.message)),
    0,
  );
}

start();
