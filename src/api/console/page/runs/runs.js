// Runs, newest first, each with its evidence.
import { ask } from '../common/ask.js';
import { openDialog } from '../common/dialog.js';
import { el, failed, keyed, place, show } from '../common/dom.js';
import { evidence } from './evidence.js';
import { duration, kindName, shortId } from '../common/format.js';
import { cancelButton } from '../common/start.js';
import { time } from '../common/time.js';

const PAGE = 15;
let shown = PAGE;

export function startRuns() {
  place('runs-kind').addEventListener('change', () => {
    shown = PAGE;
    void loadRuns();
  });
  place('runs-more').addEventListener('click', () => {
    shown += PAGE;
    void loadRuns();
  });
}

export async function loadRuns() {
  const target = place('runs');
  try {
    const kind = place('runs-kind').value;
    const { runs } = await ask(
      `/mirror/runs?limit=${Math.min(shown + 1, 500)}${kind === '' ? '' : `&kind=${kind}`}`,
    );
    place('runs-more').hidden = runs.length <= shown;
    if (runs.length === 0) {
      target.keyed?.clear();
      show(target, el('li', { class: 'none' }, 'No run yet.'));
      return;
    }
    target.classList.remove('loading');
    const families = familiesOf(runs.slice(0, shown), kind === '' && runs.length > shown);
    keyed(target, families, ({ runId }) => runId, makeRun);
  } catch (error) {
    target.keyed?.clear();
    show(target, el('li', {}, failed(error, loadRuns)));
  }
}

/** The parts of a run follow it, in the order in which they began; those of a run on the next page come with it. */
function familiesOf(runs, isCut) {
  const known = new Set(runs.map(({ runId }) => runId));
  const heads = runs.filter(({ parentRunId }) => !(isCut && parentRunId !== null) && !known.has(parentRunId));
  return heads.flatMap((head) => [
    head,
    ...runs.filter(({ parentRunId }) => parentRunId === head.runId).toReversed(),
  ]);
}

function makeRun() {
  const head = el('summary');
  const body = el('div');
  const node = el('details', {}, head, body);
  let run;
  const open = () => {
    if (node.open) body.replaceChildren(...bodyOf(run));
  };
  node.addEventListener('toggle', open);
  let key = '';
  return {
    node: el('li', {}, node),
    update: (now) => {
      run = now;
      const changedKey = `${now.state} ${now.verdict} ${now.attempts}`;
      if (changedKey === key) return;
      key = changedKey;
      head.replaceChildren(...headOf(now));
      open();
    },
  };
}

function bodyOf(run) {
  const isOpen = run.state === 'queued' || run.state === 'running';
  const name = `${kindName(run.kind)} ${shortId(run.subject)}`;
  const link = el('a', { class: 'id whole', href: `#run/${run.runId}` }, run.runId);
  return [
    el('p', { class: 'hint' }, 'Run ', link),
    isOpen && el('p', { class: 'deal' }, cancelButton(run.runId, name)),
    evidence(run),
  ].filter(Boolean);
}

function headOf(run) {
  const from = run.startedAt ?? run.queuedAt;
  const took = run.finishedAt === null ? '' : duration(Date.parse(run.finishedAt) - Date.parse(from));
  return [
    el(
      'span',
      { class: 'badge', 'data-is': run.verdict ?? (run.state === 'running' ? 'live' : 'waiting') },
      run.verdict ?? run.state,
    ),
    el(
      'span',
      { class: run.parentRunId === null ? 'what' : 'what below' },
      el('strong', {}, kindName(run.kind)),
      ' ',
      el('span', { class: 'quiet', title: run.subject }, shortId(run.subject)),
    ),
    el('span', { class: 'quiet figures took' }, took),
    el('span', { class: 'quiet when' }, time(from, 'full')),
  ];
}

export async function openRun(runId, closed) {
  const body = openDialog('Run', el('p', { class: 'loading' }, 'Loading…'), closed);
  try {
    const run = await ask(`/mirror/runs/${runId}`);
    body.title(`${kindName(run.kind)} · ${shortId(run.subject)}`);
    body.show(el('p', { class: 'runhead' }, ...headOf(run)), ...bodyOf(run));
  } catch (error) {
    body.show(failed(error, () => void openRun(runId, closed)));
  }
}

/** The last run of a kind that ended, in the dialog. */
export async function showLastRun(kind, subject) {
  const { runs } = await ask(`/mirror/runs?limit=100&kind=${kind}`);
  const found = runs.find(
    (run) => run.verdict !== null && (subject === undefined || run.subject === subject),
  );
  if (found !== undefined) await openRun(found.runId);
}
