// What runs now, and how far it is.
import { el, keyed, place, setText } from '../common/dom.js';
import { bytes, count, duration, kindName, plural, shortId } from '../common/format.js';
import { mirrorNowMs, time } from '../common/time.js';
import { partyName } from '../common/orders.js';
import { cancelButton } from '../common/start.js';

export function showNow({ live, night, inFlight, nextNight, workers }) {
  const target = place('now');
  target.classList.remove('loading');
  const items = [
    ...live.map((run) => ({
      key: run.runId,
      // What a run below it tells is not told twice.
      run: live.some(({ parentRunId }) => parentRunId === run.runId) ? { ...run, progress: [] } : run,
      night: night?.runId === run.runId ? night : undefined,
    })),
    ...flightItem(live, night, inFlight),
  ];
  if (items.length === 0) items.push({ key: 'idle', idle: true });
  keyed(target, items, ({ key }) => key, makeItem);
  const idle = target.querySelector('.idle');
  if (idle !== null) showIdle(idle, nextNight, workers);
}

function showIdle(node, nextNight, workers) {
  const key = `${nextNight} ${workers}`;
  if (node.dataset.shown === key) return;
  node.dataset.shown = key;
  node.replaceChildren(
    `Nothing is running; ${workers === 0 ? 'no worker is there' : `${plural(workers, 'worker')} ready`}. `,
    ...(nextNight === null ? [] : ['Next nightly run: ', time(nextNight), '.']),
  );
}

function makeItem({ idle, units }) {
  if (idle === true) return { node: el('p', { class: 'idle' }), update: () => undefined };
  return units === undefined ? runItem() : unitsItem();
}

/** Exports of a night come and go: one line holds them all, so that nothing below it moves. */
function flightItem(live, night, inFlight) {
  const units = inFlight.filter(
    (unit) => !live.some((run) => run.kind === 'export' && run.subject === unit.partyId),
  );
  return night === null && units.length === 0 ? [] : [{ key: 'in flight', units }];
}

function unitsItem() {
  const list = el('ul', { class: 'flights' });
  return {
    node: el('article', {}, el('p', { class: 'quiet' }, 'Exports in flight'), list),
    update: ({ units }) => keyed(list, units, ({ partyId, assetId }) => `${partyId} ${assetId}`, makeFlight),
  };
}

function makeFlight({ partyId }) {
  const figure = el('span', { class: 'figures quiet' });
  return {
    node: el('li', {}, partyName(partyId), ' ', figure),
    update: ({ progress }) => setText(figure, progress[0] === undefined ? 'asked' : bytes(progress[0].done)),
  };
}

function runItem() {
  const [kind, subject, state, spent] = [
    el('strong'),
    el('span', { class: 'id' }),
    el('span', { class: 'badge' }),
    el('span', { class: 'quiet figures' }),
  ];
  const [lines, cancel] = [el('div'), el('span')];
  return {
    node: el(
      'article',
      {},
      el('div', { class: 'head' }, el('p', { class: 'name' }, kind, ' ', subject, ' ', state), spent, cancel),
      lines,
    ),
    update: ({ run, night }) => {
      setText(kind, kindName(run.kind));
      setText(subject, shortId(run.subject));
      setText(state, run.state);
      state.dataset.is = run.state === 'running' ? 'live' : 'waiting';
      setText(spent, run.startedAt === null ? '' : duration(mirrorNowMs() - Date.parse(run.startedAt)));
      // A part of a run ends with the run; it can be cancelled by itself under Runs.
      if (run.parentRunId === null && cancel.childElementCount === 0) {
        cancel.append(cancelButton(run.runId, `${kindName(run.kind)} ${shortId(run.subject)}`));
      }
      showLines(lines, night === undefined ? run.progress : [nightLine(night), ...besides(run.progress)]);
    },
  };
}

/** The night's list is counted above, and its exports are told below: once is enough. */
function besides(lines) {
  return lines.filter(({ label }) => label !== 'exports' && label !== 'exporting');
}

/** How many ledgers of the night are done, and how long the rest may take. */
function nightLine({ waiting, done, failed, deferred, firstAt }) {
  const total = waiting + done + failed;
  const settled = done + failed;
  const spentMs = firstAt === null ? 0 : mirrorNowMs() - Date.parse(firstAt);
  const left = settled > 0 && waiting > 0 ? `about ${duration((spentMs / settled) * waiting)} left` : '';
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
  keyed(
    target,
    lines,
    ({ label }) => label,
    () => {
      const [label, figure, note, fill] = [
        el('span'),
        el('span', { class: 'figures' }),
        el('span', { class: 'quiet note' }),
        el('i'),
      ];
      const bar = el(
        'div',
        {
          class: 'meter',
          role: 'progressbar',
          'aria-label': 'progress',
          'aria-valuemin': 0,
          'aria-valuemax': 100,
        },
        fill,
      );
      return {
        node: el('div', { class: 'line' }, el('p', {}, label, ' ', figure, ' ', note), bar),
        update: (line) => {
          setText(label, line.label);
          const shown = line.unit === 'bytes' ? bytes : count;
          setText(
            figure,
            line.total === undefined
              ? `${shown(line.done)} ${line.unit === 'bytes' ? '' : line.unit}`
              : `${shown(line.done)} of ${shown(line.total)} ${line.unit === 'bytes' ? '' : line.unit}`,
          );
          setText(note, line.note ?? '');
          const share =
            line.total === undefined ? undefined : Number(line.done) / Math.max(Number(line.total), 1);
          bar.setAttribute('aria-label', line.label);
          if (share === undefined) bar.removeAttribute('aria-valuenow');
          else bar.setAttribute('aria-valuenow', String(Math.round(share * 100)));
          bar.dataset.is = share === undefined ? 'unknown' : 'known';
          fill.style.width = `${(share ?? 1) * 100}%`;
        },
      };
    },
  );
}
