/** A run in a few lines: how it ended, what it brought, what needs a person. `runs ID` shows all evidence. */
import { COMMAND } from '../typed.ts';
import { formatBytes, formatCount, printable, truncate } from './format.ts';
import { runHead } from './report.ts';

type Fields = Readonly<Record<string, unknown>>;

const FAULTS_SHOWN_MAX = 5;
const LINE_CHARACTERS_MAX = 240;
const LABEL_CHARACTERS = 11;

/**
 * @param run `{ runId, kind, subject, state, verdict, startedAt, finishedAt, evidence }`
 * @param command how the reader calls this program, for the line that says how to see more
 * @returns lines, each ended
 */
export function runSummary(run: Fields, command = COMMAND): string {
  const evidence = fields(run['evidence']);
  const kind = text(run['kind']);
  const faults = collectFaults(evidence, 0);
  const more = faults.length - FAULTS_SHOWN_MAX;
  const lines = [
    runHead(run),
    ...(kind === 'nightly' ? nightlyLines(evidence) : partLines(LABELS[kind] ?? kind, evidence)),
    ...faults.slice(0, FAULTS_SHOWN_MAX).map((fault) => line('because', fault)),
    ...(more > 0 ? [line('', `… and ${formatCount(more)} more`)] : []),
    line(run['verdict'] === 'complete' ? 'run' : 'evidence', `${command} runs ${text(run['runId'])}`),
  ];
  return lines.map((one) => `${one}\n`).join('');
}

/** How a run that is no part of another is labelled. */
const LABELS: Readonly<Record<string, string>> = {
  sync: 'list',
  export: 'exported',
  load: 'loaded',
  verify: 'checked',
};

type Tell = (evidence: Fields) => string;
/** What a run, or a part of a nightly run, says of itself by its label, once its evidence has `proof`. */
const PARTS: Readonly<Record<string, readonly [proof: string, tell: Tell]>> = {
  list: ['rows', syncText],
  exported: ['rows', exportText],
  loaded: ['rows', loadText],
  checked: ['checked', verifyText],
  exports: ['parties', nightExportsText],
  load: ['rows', loadText],
  verify: ['checked', verifyText],
  source: ['requests', costText],
};

function nightlyLines(evidence: Fields): string[] {
  const lists = Object.entries(fields(evidence['lists']));
  return [
    ...lists.map(([name, list]) => line(name, marked(fields(list), syncText(fields(list))))),
    ...['exports', 'load', 'verify', 'source'].flatMap((label) => partLines(label, fields(evidence[label]))),
  ];
}

function partLines(label: string, evidence: Fields): string[] {
  const [proof = '', tell] = PARTS[label] ?? [];
  if (tell === undefined || !hasAny(evidence, proof)) return [];
  const told = line(label, marked(evidence, tell(evidence)));
  return tell === loadText ? [told, line('lake', lakeText(fields(evidence['lake'])))] : [told];
}

/** The source lists checkpoints twice, each held once, and `network` beside the parties. */
function syncText(sync: Fields): string {
  if (!hasAny(sync, 'rows')) return '';
  const network = sync['network'] === 'stored' ? ' and network' : '';
  const repeats = sync['list'] === 'checkpoints' ? ' (repeats included)' : '';
  const asOf = hasAny(sync, 'asOfHeight') ? `, as of block ${text(sync['asOfHeight'])}` : '';
  const [doubts, gaps] = [items(sync['doubts']).length, items(sync['knownGaps']).length];
  const open = doubts === 0 ? '' : `; ${plural(doubts, 'open doubt')}, the next sync reads everything again`;
  const known = gaps === 0 ? '' : `; ${plural(gaps, 'known gap')}`;
  const listed = `${amount(sync['rows'])}${network} listed${repeats}`;
  return `${listed}, ${amount(sync['newRows'])} new, in ${plural(sync['pages'], 'page')}${asOf}${open}${known}`;
}

function exportText(evidence: Fields): string {
  const closedTo = text(evidence['closedTo']).slice(0, 19);
  const closed = closedTo === '' ? '' : `; closed up to ${closedTo}Z`;
  return `${publishedText(evidence['rows'], evidence['replacedRows'])}, ${bytes(evidence['bytes'])} as CSV, in ${plural(evidence['segments'], 'segment')}${closed}`;
}

/** An open segment is published again with what came since: its earlier rows are no new entries. */
function publishedText(rows: unknown, replaced: unknown): string {
  const grown = whole(rows) - whole(replaced);
  const entries = plural(String(grown < 0n ? 0n : grown), 'new entry', 'new entries');
  if (whole(replaced) === 0n) return entries;
  return `${entries} (${plural(rows, 'row')} published, ${amount(replaced)} replaced)`;
}

function nightExportsText(exports: Fields): string {
  const published = publishedText(exports['newRows'], exports['replacedRows']);
  return [
    plural(exports['parties'], 'party', 'parties'),
    `${published}, in ${plural(exports['newSegments'], 'segment')}`,
    ...['failed', 'suspicious', 'unasked', 'deferred'].flatMap((name) => someText(exports[name], name)),
  ].join(', ');
}

function loadText(load: Fields): string {
  return [
    `${amount(load['rows'])} rows of ${plural(load['segments'], 'segment')} into the warehouse`,
    ...someText(load['quarantinedCount'], 'quarantined'),
    ...someText(load['effectsContradicted'], 'whose effect contradicts their accounts'),
  ].join(', ');
}

/** Nothing where there are none. */
function someText(count: unknown, what: string): string[] {
  return whole(count) > 0n ? [`${amount(count)} ${what}`] : [];
}

function lakeText(lake: Fields): string {
  return `moment ${text(lake['version'])}: ${amount(lake['rows'])} rows in ${plural(lake['files'], 'file')}, ${bytes(lake['bytes'])}`;
}

function verifyText(verify: Fields): string {
  const checked = fields(verify['checked']);
  const problems = Number(verify['problemCount']);
  return (
    `${plural(checked['segments'], 'segment')} (${bytes(checked['objectBytes'])} as stored), ` +
    `${amount(checked['warehouseRows'])} entries in the warehouse, ${amount(checked['lakeRows'])} rows in all tables of the lake: ` +
    (problems === 0 ? 'every sum agrees' : plural(problems, 'problem'))
  );
}

function costText(source: Fields): string {
  const requests = Object.values(fields(source['requests'])).reduce<number>(
    (sum, count) => sum + Number(count),
    0,
  );
  const retries = Number(source['retries']) > 0 ? `, ${amount(source['retries'])} of them again` : '';
  return `${plural(requests, 'request')}${retries}, ${bytes(source['bytes'])} received`;
}

/** Under these names evidence says what went wrong, wherever in it they lie. */
const FAULT_LISTS = [
  'missing',
  'violations',
  'knownGaps',
  'warnings',
  'problems',
  'quarantined',
  'failures',
  'failed',
];
const DEPTH_MAX = 3;

/** One line each. */
function collectFaults(evidence: Fields, depth: number): string[] {
  const { error, reason, ...others } = evidence;
  const faults = [
    ...(hasAny(evidence, 'error') ? [error] : []),
    ...(typeof reason === 'string' ? [reason] : []),
    ...FAULT_LISTS.flatMap((name) => items(evidence[name])),
  ];
  const below = depth >= DEPTH_MAX ? [] : Object.values(others);
  return [
    ...new Set([
      ...faults.map(faultText),
      ...below.flatMap((value) => collectFaults(fields(value), depth + 1)),
    ]),
  ];
}

function faultText(fault: unknown): string {
  if (typeof fault === 'string') return fault;
  const { message, code, partyId, outcome, error, reasons } = fields(fault);
  const [reason] = items(reasons);
  const inner = fields(error ?? fields(outcome)['error'] ?? reason ?? fault);
  const said = text(inner['message']) || text(fields(inner['meta'])['message']);
  const name = (reason === undefined && text(code)) || text(inner['code']);
  const which = text(partyId) === '' ? '' : `party ${text(partyId)}: `;
  return `${which}${text(message) || said || JSON.stringify(fault)}${name === '' ? '' : ` (${name})`}`;
}

/** A part that is not complete says so itself. */
function marked(part: Fields, told: string): string {
  const verdict = text(part['verdict']);
  return verdict === 'complete' || verdict === '' ? told : `${verdict}${told === '' ? '' : `: ${told}`}`;
}

function line(label: string, told: string): string {
  return `  ${label.padEnd(LABEL_CHARACTERS)}  ${printable(truncate(told, LINE_CHARACTERS_MAX))}`;
}

function fields(value: unknown): Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {};
}

function items(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function hasAny(record: Fields, name: string): boolean {
  return record[name] !== undefined && record[name] !== null;
}

function text(value: unknown): string {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : '';
}

function whole(value: unknown): bigint {
  return /^\d{1,40}$/.test(text(value)) ? BigInt(text(value)) : 0n;
}

function amount(value: unknown): string {
  return formatCount(whole(value));
}

function bytes(value: unknown): string {
  return formatBytes(whole(value));
}

function plural(value: unknown, one: string, many = `${one}s`): string {
  const count = whole(value);
  return `${formatCount(count)} ${count === 1n ? one : many}`;
}
