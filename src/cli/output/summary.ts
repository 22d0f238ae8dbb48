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
  const lines = [runHead(run), ...linesOf(text(run['kind']), evidence), ...faultLines(evidence)];
  const isComplete = run['verdict'] === 'complete';
  const pointer = `${command} runs ${text(run['runId'])}`;
  return [...lines, line(isComplete ? 'run' : 'evidence', pointer)].map((one) => `${one}\n`).join('');
}

/** What one run, or one part of a nightly run, says of itself once it got so far as to have `proof`. */
interface Part {
  readonly label: string;
  readonly proof: string;
  readonly tell: (evidence: Fields) => string;
}

const PARTS: Readonly<Record<string, Part>> = {
  sync: { label: 'list', proof: 'rows', tell: syncText },
  export: { label: 'exported', proof: 'rows', tell: exportText },
  load: { label: 'loaded', proof: 'rows', tell: loadText },
  verify: { label: 'checked', proof: 'checked', tell: verifyText },
};
const NIGHTLY_PARTS: readonly Part[] = [
  { label: 'exports', proof: 'parties', tell: nightExportsText },
  { label: 'load', proof: 'rows', tell: loadText },
  { label: 'verify', proof: 'checked', tell: verifyText },
  { label: 'source', proof: 'requests', tell: costText },
];

function linesOf(kind: string, evidence: Fields): string[] {
  if (kind === 'nightly') return nightlyLines(evidence);
  const part = PARTS[kind];
  return part === undefined ? [] : partLines(part, evidence);
}

function nightlyLines(evidence: Fields): string[] {
  const lists = Object.entries(fields(evidence['lists']));
  return [
    ...lists.map(([name, list]) => line(name, marked(fields(list), syncText(fields(list))))),
    ...NIGHTLY_PARTS.flatMap((part) => partLines(part, fields(evidence[part.label]))),
  ];
}

function partLines({ label, proof, tell }: Part, evidence: Fields): string[] {
  if (!hasAny(evidence, proof)) return [];
  const told = line(label, marked(evidence, tell(evidence)));
  return tell === loadText ? [told, line('lake', lakeText(fields(evidence['lake'])))] : [told];
}

/** The source lists checkpoints twice, each held once, and `network` beside the parties. */
function listedText(sync: Fields): string {
  const network = sync['network'] === 'stored' ? ' and network' : '';
  const repeats = sync['list'] === 'checkpoints' ? ' (repeats included)' : '';
  return `${amount(sync['rows'])}${network} listed${repeats}`;
}

function syncText(sync: Fields): string {
  if (!hasAny(sync, 'rows')) return '';
  const asOf = hasAny(sync, 'asOfHeight') ? `, as of block ${text(sync['asOfHeight'])}` : '';
  const doubts = Array.isArray(sync['doubts']) ? sync['doubts'].length : 0;
  const gaps = Array.isArray(sync['knownGaps']) ? sync['knownGaps'].length : 0;
  const open = doubts === 0 ? '' : `; ${plural(doubts, 'open doubt')}, the next sync reads everything again`;
  const known = gaps === 0 ? '' : `; ${plural(gaps, 'known gap')}`;
  return `${listedText(sync)}, ${amount(sync['newRows'])} new, in ${plural(sync['pages'], 'page')}${asOf}${open}${known}`;
}

function exportText(evidence: Fields): string {
  const closed = hasAny(evidence, 'closedTo')
    ? `; closed up to ${text(evidence['closedTo']).slice(0, 19)}Z`
    : '';
  return `${publishedText(evidence['rows'], evidence['replacedRows'])}, ${bytes(evidence['bytes'])} as CSV, in ${plural(evidence['segments'], 'segment')}${closed}`;
}

/** An open segment is published again with what came since: its earlier rows are no new entries. */
function publishedText(rows: unknown, replaced: unknown): string {
  if (whole(replaced) === 0n) return plural(rows, 'new entry', 'new entries');
  const grown = whole(rows) - whole(replaced);
  const told = `(${plural(rows, 'row')} published, ${amount(replaced)} replaced)`;
  return `${plural(String(grown < 0n ? 0n : grown), 'new entry', 'new entries')} ${told}`;
}

function nightExportsText(exports: Fields): string {
  const parts = [
    plural(exports['parties'], 'party', 'parties'),
    `${publishedText(exports['newRows'], exports['replacedRows'])}, in ${plural(exports['newSegments'], 'segment')}`,
    ...['failed', 'suspicious', 'unasked', 'deferred']
      .filter((name) => Number(exports[name]) > 0)
      .map((name) => `${amount(exports[name])} ${name}`),
  ];
  return parts.join(', ');
}

function loadText(load: Fields): string {
  const quarantined =
    Number(load['quarantinedCount']) > 0 ? `, ${amount(load['quarantinedCount'])} quarantined` : '';
  const contradicted = Number(load['effectsContradicted'] ?? 0);
  const odd = contradicted > 0 ? `, ${amount(contradicted)} whose effect contradicts their accounts` : '';
  return `${amount(load['rows'])} rows of ${plural(load['segments'], 'segment')} into the warehouse${quarantined}${odd}`;
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

/** What went wrong, wherever in the evidence it lies: one line each, the first few. */
function faultLines(evidence: Fields): string[] {
  const faults = collectFaults(evidence, 0);
  const more = faults.length - FAULTS_SHOWN_MAX;
  return [
    ...faults.slice(0, FAULTS_SHOWN_MAX).map((fault) => line('because', fault)),
    ...(more > 0 ? [line('', `… and ${formatCount(more)} more`)] : []),
  ];
}

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

function collectFaults(evidence: Fields, depth: number): string[] {
  const own = hasAny(evidence, 'error') ? [faultText(evidence['error'])] : [];
  const reason = typeof evidence['reason'] === 'string' ? [evidence['reason']] : [];
  const listed = FAULT_LISTS.flatMap((name) => {
    const items: unknown = evidence[name];
    return Array.isArray(items) ? items.map((item) => faultText(item)) : [];
  });
  const below =
    depth >= DEPTH_MAX
      ? []
      : Object.entries(evidence)
          .filter(([name]) => name !== 'error')
          .flatMap(([, value]) => collectFaults(fields(value), depth + 1));
  return [...new Set([...own, ...reason, ...listed, ...below])];
}

function faultText(fault: unknown): string {
  if (typeof fault === 'string') return fault;
  const { message, code, partyId, outcome, error, reasons } = fields(fault);
  const [reason] = Array.isArray(reasons) ? (reasons as readonly unknown[]) : [];
  const inner = fields(error ?? fields(outcome)['error'] ?? reason ?? fault);
  const said = text(inner['message']) || text(fields(inner['meta'])['message']);
  const what = text(message) || said || JSON.stringify(fault);
  const which = text(partyId) === '' ? '' : `party ${text(partyId)}: `;
  const name = reason === undefined ? text(code) || text(inner['code']) : text(inner['code']);
  return `${which}${what}${name === '' ? '' : ` (${name})`}`;
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
