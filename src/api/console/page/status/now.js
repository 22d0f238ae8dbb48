// Shows what is running now, and its progress.
import { byId, el, keyed, redraw, setText } from '../common/dom.js';
import {
  bytes,
  count,
  duration,
  kindName,
  plural,
  shortId,
} from '../common/format.js';
import { mirrorNowMs, time } from '../common/time.js';
import { partyName } from '../common/orders.js';
import { cancelButton } from '../common/start.js';

/** @param target the element to show it in */
export function showNow(
  { live, nightly, inFlight, nextNightlyRun, workers },
  target = byId('now'),
) {
  const items = [
    ...live.map((run) => ({
      key: run.runId,
      // Progress that a child run shows is not repeated for its parent.
      run: live.some(({ parentRunId }) => parentRunId === run.runId)
        ? { ...run, progress: [] }
        : run,
      nightly: nightly?.runId === run.runId ? nightly : undefined,
    })),
    ...flights(live, nightly, inFlight),
  ];
  const idle = { key: 'idle', nextNightlyRun, workers };
  keyed(target, items.length > 0 ? items : [idle], ({ key }) => key, makeItem);
}

function makeItem({ key, run }) {
  if (key === 'idle') return idleItem();
  return run === undefined ? flightsItem() : runItem();
}

function idleItem() {
  const node = el('p.idle');
  const update = ({ nextNightlyRun, workers }) =>
    redraw(node, `${nextNightlyRun} ${workers}`, () => [
      `Nothing is running; ${workers === 0 ? 'no worker is there' : `${plural(workers, 'worker')} ready`}. `,
      ...(nextNightlyRun === null
        ? []
        : ['Next nightly run: ', time(nextNightlyRun), '.']),
    ]);
  return { node, update };
}

/**
 * Returns one item for all exports of a nightly run. Exports start and end quickly, so
 * separate items would move everything below them.
 */
function flights(live, nightly, inFlight) {
  const exports = inFlight.filter(
    ({ partyId }) =>
      !live.some((run) => run.kind === 'export' && run.subject === partyId),
  );
  return nightly === null && exports.length === 0
    ? []
    : [{ key: 'in flight', exports }];
}

function flightsItem() {
  const list = el('ul.flights');
  return {
    node: el('article', el('p.quiet', 'Exports in progress'), list),
    update: ({ exports }) =>
      keyed(
        list,
        exports,
        ({ partyId, assetId }) => `${partyId} ${assetId}`,
        makeFlight,
      ),
  };
}

function makeFlight({ partyId }) {
  const figure = el('span.figures.quiet');
  return {
    node: el('li', partyName(partyId), ' ', figure),
    update: ({ progress: [received], isAtSource }) => {
      const place = isAtSource ? 'at the source' : 'waiting for its turn';
      setText(figure, received === undefined ? place : bytes(received.done));
    },
  };
}

function runItem() {
  const kind = el('strong');
  const subject = el('span.id');
  const state = el('span.badge');
  const spent = el('span.quiet.figures');
  const lines = el('div');
  const cancel = el('span');
  return {
    node: el(
      'article',
      el(
        'div.head',
        el('p.name', kind, ' ', subject, ' ', state),
        spent,
        cancel,
      ),
      lines,
    ),
    update: ({ run, nightly }) => {
      setText(kind, kindName(run.kind));
      setText(subject, shortId(run.subject));
      setText(state, run.state);
      state.dataset.is = run.state === 'running' ? 'live' : 'waiting';
      setText(
        spent,
        run.startedAt === null
          ? ''
          : duration(mirrorNowMs() - Date.parse(run.startedAt)),
      );
      // A child run gets no button here, because it ends with its parent. It can be
      // cancelled separately under Runs.
      if (run.parentRunId === null && cancel.childElementCount === 0) {
        cancel.append(
          cancelButton(
            run.runId,
            `${kindName(run.kind)} ${shortId(run.subject)}`,
          ),
        );
      }
      showLines(
        lines,
        nightly === undefined
          ? run.progress
          : [ledgersLine(nightly), ...besides(run.progress)],
      );
    },
  };
}

/**
 * Leaves out progress that is already shown: ledgers are counted above, and exports are
 * shown below.
 */
function besides(lines) {
  return lines.filter(
    ({ label }) => label !== 'exports' && label !== 'exporting',
  );
}

/**
 * Returns a line with how many ledgers of a nightly run are done, and an estimate of how
 * long the remaining ones will take.
 */
function ledgersLine({ waiting, done, failed, deferred, firstAt }) {
  const total = waiting + done + failed;
  const settled = done + failed;
  const spentMs = firstAt === null ? 0 : mirrorNowMs() - Date.parse(firstAt);
  const left =
    settled > 0 && waiting > 0
      ? `about ${duration((spentMs / settled) * waiting)} left`
      : '';
  const notes = [
    failed > 0 ? `${count(failed)} failed` : '',
    deferred > 0 ? `${count(deferred)} put off` : '',
    left,
  ];
  return {
    label: 'ledgers',
    done: String(settled),
    total: String(total),
    unit: 'parties',
    note: notes.filter((note) => note !== '').join(', '),
  };
}

function showLines(target, lines) {
  keyed(target, lines, ({ label }) => label, makeLine);
}

function makeLine({ label }) {
  const figure = el('span.figures');
  const note = el('span.quiet.note');
  const bar = el('i');
  const meter = el(
    'div.meter',
    {
      role: 'progressbar',
      'aria-label': label,
      'aria-valuemin': 0,
      'aria-valuemax': 100,
    },
    bar,
  );
  return {
    node: el(
      'div.line',
      el('p', el('span', label), ' ', figure, ' ', note),
      meter,
    ),
    update: (line) => {
      const isKnown = line.total !== undefined;
      const shown = line.unit === 'bytes' ? bytes : count;
      const of = isKnown ? ` of ${shown(line.total)}` : '';
      setText(
        figure,
        `${shown(line.done)}${of} ${line.unit === 'bytes' ? '' : line.unit}`,
      );
      setText(note, line.note ?? '');
      const percent = isKnown
        ? (Number(line.done) / Math.max(Number(line.total), 1)) * 100
        : 100;
      if (isKnown)
        meter.setAttribute('aria-valuenow', String(Math.round(percent)));
      else meter.removeAttribute('aria-valuenow');
      meter.dataset.is = isKnown ? 'known' : 'unknown';
      bar.style.width = `${percent}%`;
    },
  };
}
