// Lists the runs, newest first, each with its evidence.
import { ask } from '../common/ask.js';
import { keepInAddress } from '../common/address.js';
import { copyButton } from '../common/copy.js';
import { openDialog } from '../common/dialog.js';
import { byId, el, keyed, loader, redraw, show } from '../common/dom.js';
import { evidence } from './evidence.js';
import { duration, kindName, shortId } from '../common/format.js';
import { cancelButton } from '../common/start.js';
import { explain } from '../common/terms.js';
import { time } from '../common/time.js';

const PAGE = 15;
/** The fields above the list, by the names that the address and the API use. */
const FILTERS = ['kind', 'verdict', 'subject', 'since', 'until'];
let shown = PAGE;

export function startRuns() {
  for (const name of FILTERS) {
    const field = byId(`runs-${name}`);
    keepInAddress(name, field);
    field.addEventListener('change', () => {
      shown = PAGE;
      void loadRuns();
    });
  }
  byId('runs-more').addEventListener('click', () => {
    shown += PAGE;
    void loadRuns();
  });
}

export const loadRuns = loader(
  'runs',
  async () => {
    const given = FILTERS.map((name) => [
      name,
      byId(`runs-${name}`).value.trim(),
    ]);
    const filters = given.filter(([, value]) => value !== '');
    const limit = String(Math.min(shown + 1, 500));
    const query = new URLSearchParams([['limit', limit], ...filters]);
    const { runs } = await ask(`mirror/runs?${query.toString()}`);
    byId('runs-more').hidden = runs.length <= shown;
    const families = familiesOf(
      runs.slice(0, shown),
      filters.length === 0 && runs.length > shown,
    );
    return { families, isFiltered: filters.length > 0 };
  },
  ({ families, isFiltered }, target) => {
    const none = isFiltered ? 'No run is like this.' : 'No run yet.';
    if (families.length === 0) show(target, el('li.none', none));
    else keyed(target, families, ({ runId }) => runId, makeRun);
  },
  (problem) => el('li', problem),
);

/**
 * Lists the parts of each run after the run, in the order in which they began. If a run
 * is on the next page, its parts are shown there with it.
 */
function familiesOf(runs, isCut) {
  const known = new Set(runs.map(({ runId }) => runId));
  const heads = runs.filter(
    ({ parentRunId }) =>
      !(isCut && parentRunId !== null) && !known.has(parentRunId),
  );
  return heads.flatMap((head) => [
    head,
    ...runs
      .filter(({ parentRunId }) => parentRunId === head.runId)
      .toReversed(),
  ]);
}

function makeRun() {
  const head = el('summary');
  const body = el('div');
  const node = el('details', head, body);
  let run;
  const open = () => {
    if (node.open) body.replaceChildren(...bodyOf(run));
  };
  node.addEventListener('toggle', open);
  return {
    node: el('li', node),
    update: (now) => {
      run = now;
      redraw(head, `${now.state} ${now.verdict} ${now.attempts}`, () => {
        open();
        return headOf(now);
      });
    },
  };
}

function bodyOf(run) {
  const isOpen = run.state === 'queued' || run.state === 'running';
  const name = `${kindName(run.kind)} ${shortId(run.subject)}`;
  const link = el('a.id.whole', { href: `#run/${run.runId}` }, run.runId);
  return [
    el(
      'p.deal',
      el('span.hint', 'Run ', link),
      copyButton(run.runId, 'the id of the run'),
    ),
    run.verdict !== null &&
      el('p.hint', 'Verdict: ', ...explain(run.verdict), '.'),
    isOpen && el('p.deal', cancelButton(run.runId, name)),
    evidence(run),
  ].filter(Boolean);
}

function headOf(run) {
  const from = run.startedAt ?? run.queuedAt;
  const took =
    run.finishedAt === null
      ? ''
      : duration(Date.parse(run.finishedAt) - Date.parse(from));
  return [
    el(
      'span.badge',
      {
        'data-is':
          run.verdict ?? (run.state === 'running' ? 'live' : 'waiting'),
      },
      run.verdict ?? run.state,
    ),
    el(
      'span',
      { class: run.parentRunId === null ? 'what' : 'what below' },
      el('strong', kindName(run.kind)),
      ' ',
      el('span.quiet', { title: run.subject }, shortId(run.subject)),
    ),
    el('span.quiet.figures.took', took),
    el('span.quiet.when', time(from, 'full')),
  ];
}

export function openRun(runId, closed) {
  const read = async () => {
    const run = await ask(`mirror/runs/${encodeURIComponent(runId)}`);
    const title = `${kindName(run.kind)} · ${shortId(run.subject)}`;
    return { title, parts: [el('p.runhead', ...headOf(run)), ...bodyOf(run)] };
  };
  return openDialog('Run', read, closed);
}

/** Opens the dialog with the last run of a kind that has ended. */
export async function showLastRun(kind, subject) {
  const { runs } = await ask(`mirror/runs?limit=100&kind=${kind}`);
  const found = runs.find(
    (run) =>
      run.verdict !== null &&
      (subject === undefined || run.subject === subject),
  );
  if (found !== undefined) await openRun(found.runId);
}
