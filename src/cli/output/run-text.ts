/** Summarises an ended run in a few lines; `run-report.ts` shows it with its evidence. */
import { COMMAND } from '../command-name.ts';
import {
  endLines,
  type Fields,
  fields,
  isPlain,
  labelled,
  listFaults,
  NAMES,
  valueText,
  word,
} from './evidence.ts';
import { formatCount, formatDuration } from '../../format/format.js';

const FAULTS_SHOWN_MAX = 5;

const LIST = 'rows newRows pages asOfHeight doubts';
/**
 * The fields of a run, or of part of a nightly run, that the summary shows. The first is
 * always shown, the others unless they are zero or missing.
 */
const TOLD: Readonly<Record<string, string>> = {
  sync: LIST,
  parties: LIST,
  checkpoints: LIST,
  export: 'rows replacedRows bytes segments closedTo',
  exports:
    'newRows parties replacedRows newSegments failed suspicious unasked deferred',
  load: 'rows segments quarantinedCount effectsContradicted',
  lake: 'rows version files bytes',
  verify: 'problemCount segments objectBytes warehouseRows lakeRows',
  source: 'bytes lists exports retries',
};
/**
 * Formats the summary.
 * @param run `{ runId, kind, subject, state, verdict, startedAt, finishedAt, evidence }`
 * @param command how the user starts this program, for the line that says how to see more
 * @returns lines, each with a trailing line break
 */
export function runSummary(run: Fields, command = COMMAND): string {
  const { kind, runId, verdict } = run;
  const evidence = fields(run['evidence']);
  const { lists, ...parts } = evidence;
  const told =
    kind === 'nightly'
      ? { ...fields(lists), ...parts }
      : { [word(kind)]: evidence };
  const faults = listFaults(evidence);
  const more = faults.length - FAULTS_SHOWN_MAX;
  return endLines([
    runHead(run),
    ...Object.entries(told).flatMap(([label, part]) =>
      partLines(label, fields(part)),
    ),
    ...faults
      .slice(0, FAULTS_SHOWN_MAX)
      .map(({ text }) => labelled('because', text)),
    ...(more > 0 ? [labelled('', `… and ${formatCount(more)} more`)] : []),
    labelled(
      verdict === 'complete' ? 'run' : 'evidence',
      `${command} runs ${word(runId)}`,
    ),
  ]);
}

/** Formats the first line of a summary: `✓ sync parties: complete in 3.2 s`. */
export function runHead({
  kind,
  subject,
  state,
  verdict,
  startedAt,
  finishedAt,
}: Fields): string {
  const tookMs = Date.parse(word(finishedAt)) - Date.parse(word(startedAt));
  const took = Number.isNaN(tookMs) ? '' : ` in ${formatDuration(tookMs)}`;
  return (
    `${verdict === 'complete' ? '✓' : '!'} ${word(kind)} ${word(subject)}: ` +
    `${word(verdict ?? state)}${took}`
  );
}

function partLines(label: string, part: Fields): string[] {
  const [first = '', ...others] = TOLD[label]?.split(' ') ?? [];
  const given: Fields = {
    ...part,
    ...fields(part['checked']),
    ...fields(part['requests']),
  };
  const amount = (name: string) =>
    Array.isArray(given[name]) ? given[name].length : given[name];
  if (amount(first) === undefined) return [];
  const some = others.filter(
    (name) => isPlain(amount(name)) && !/^0?$/.test(String(amount(name))),
  );
  const facts = [first, ...some]
    .map((name) => tell(name, amount(name)))
    .join(', ');
  const verdict = word(part['verdict']);
  const mark = verdict === '' || verdict === 'complete' ? '' : `${verdict}: `;
  return [
    labelled(label, `${mark}${facts}`),
    ...partLines('lake', fields(part['lake'])),
  ];
}

/** Formats one fact: `1,200 new rows`, `as of height 99`. */
function tell(name: string, value: unknown): string {
  const text = valueText(name, value);
  if (name === 'bytes') return text;
  const words = name.replaceAll(/[A-Z]/g, ' $&').toLowerCase();
  const label = words.replace(/ count$/, 's');
  if (NAMES.test(name) || !/^[\d,]+$/.test(text)) return `${label} ${text}`;
  return `${text} ${text === '1' ? label.replace(/ies$/, 'y').replace(/s$/, '') : label}`;
}
