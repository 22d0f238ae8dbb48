/**
 * A run in words: in a few lines once it has ended (`runSummary`), or with its evidence
 * (`runReport`).
 */
import { inspect } from 'node:util';
import { COMMAND } from '../typed.ts';
import {
  formatBytes,
  formatCount,
  formatDuration,
  printable,
  truncate,
} from './format.ts';

type Fields = Readonly<Record<string, unknown>>;

const INDENT = '  ';
/** Bounded in every direction: a failed run may have evidence of megabytes. */
const EVIDENCE_FORM = {
  depth: 5,
  maxArrayLength: 20,
  maxStringLength: 1_000,
  breakLength: 110,
};
const FAULTS_SHOWN_MAX = 5;
const VALUE_CHARACTERS_MAX = 400;
const LABEL_CHARACTERS = 11;

const LIST = 'rows newRows pages asOfHeight doubts';
/**
 * What the summary tells of a run, or of a part of a nightly run: the first always, the
 * rest where there are some.
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
/** Under these names evidence says what went wrong, wherever in it they lie. */
const FAULTS =
  /^(?:missing|violations|knownGaps|warnings|problems|quarantined|failures|failed)$/;
/** Names more than quantities: grouping would hide them from a search. */
const NAMES = /(?:height|block|epoch|status|code|port|id|version)$/i;

/**
 * @param run `{ runId, kind, subject, state, verdict, startedAt, finishedAt, evidence }`
 * @param command how the reader calls this program, for the line that says how to see
 *   more
 * @returns lines, each ended
 */
export function runSummary(run: Fields, command = COMMAND): string {
  const { kind, runId, verdict } = run;
  const evidence = fields(run['evidence']);
  const { lists, ...parts } = evidence;
  const told =
    kind === 'nightly'
      ? { ...fields(lists), ...parts }
      : { [word(kind)]: evidence };
  const faults = collectFaults(evidence, 0);
  const more = faults.length - FAULTS_SHOWN_MAX;
  return endLines([
    runHead(run),
    ...Object.entries(told).flatMap(([label, part]) =>
      partLines(label, fields(part)),
    ),
    ...faults
      .slice(0, FAULTS_SHOWN_MAX)
      .map((fault) => labelled('because', fault)),
    ...(more > 0 ? [labelled('', `… and ${formatCount(more)} more`)] : []),
    labelled(
      verdict === 'complete' ? 'run' : 'evidence',
      `${command} runs ${word(runId)}`,
    ),
  ]);
}

/**
 * The names of evidence are those that the docs have. An `error` comes first; `--json`
 * cuts nothing.
 */
export function runReport(run: Fields): string {
  const { error, ...others } = fields(run['evidence']);
  const evidence = { ...(error === undefined ? {} : { error }), ...others };
  const lines =
    Object.keys(evidence).length === 0
      ? []
      : inspect(evidence, EVIDENCE_FORM).split('\n');
  return endLines([
    runHead(run),
    `${INDENT}run  ${word(run['runId'])}`,
    ...lines.map(printable),
  ]);
}

/** `✓ sync parties: complete in 3.2 s` */
function runHead({
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

/** `1,200 new rows`, `as of height 99`. */
function tell(name: string, value: unknown): string {
  const text = valueText(name, value);
  if (name === 'bytes') return text;
  const words = name.replaceAll(/[A-Z]/g, ' $&').toLowerCase();
  const label = words.replace(/ count$/, 's');
  if (NAMES.test(name) || !/^[\d,]+$/.test(text)) return `${label} ${text}`;
  return `${text} ${text === '1' ? label.replace(/ies$/, 'y').replace(/s$/, '') : label}`;
}

/** One line each. */
function collectFaults(evidence: Fields, depth: number): string[] {
  const { error, reason, ...others } = evidence;
  const listed = Object.entries(others).flatMap(([name, value]) =>
    FAULTS.test(name) ? value : [],
  );
  const faults = [
    error,
    ...(typeof reason === 'string' ? [reason] : []),
    ...listed,
  ];
  const told = faults
    .filter((fault) => typeof fault === 'string' || isRecord(fault))
    .map(faultText);
  const below = depth > 2 ? [] : Object.values(others);
  return [
    ...new Set([
      ...told,
      ...below.flatMap((value) => collectFaults(fields(value), depth + 1)),
    ]),
  ];
}

function faultText(fault: unknown): string {
  if (typeof fault === 'string') return fault;
  const { message, code, partyId, outcome, error, reasons } = fields(fault);
  const [reason] = Array.isArray(reasons) ? (reasons as unknown[]) : [];
  const inner = fields(error ?? fields(outcome)['error'] ?? reason ?? fault);
  const said =
    word(message) ||
    word(inner['message']) ||
    word(fields(inner['meta'])['message']);
  const name = (reason === undefined && word(code)) || word(inner['code']);
  const which = word(partyId) === '' ? '' : `party ${word(partyId)}: `;
  return `${which}${said || JSON.stringify(fault)}${name === '' ? '' : ` (${name})`}`;
}

function labelled(label: string, told: string): string {
  return `${INDENT}${label.padEnd(LABEL_CHARACTERS)}  ${shorten(told)}`;
}

/** Counts arrive as decimal text; names say which of them are bytes or milliseconds. */
function valueText(name: string, value: unknown): string {
  if (!isPlain(value)) return shorten(JSON.stringify(value));
  const text = String(value);
  if (!/^-?\d{1,30}$/.test(text)) return shorten(text);
  if (/bytes$/i.test(name)) return formatBytes(text);
  if (name.endsWith('Ms')) return formatDuration(Number(text));
  return NAMES.test(name) ? text : formatCount(text);
}

function isPlain(value: unknown): boolean {
  return ['string', 'number', 'bigint', 'boolean'].includes(typeof value);
}

function isRecord(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function fields(value: unknown): Fields {
  return isRecord(value) ? value : {};
}

function word(value: unknown): string {
  return typeof value === 'string' ? printable(value) : '';
}

function shorten(text: string): string {
  return printable(truncate(text, VALUE_CHARACTERS_MAX));
}

function endLines(lines: readonly string[]): string {
  return lines.map((line) => `${line}\n`).join('');
}
