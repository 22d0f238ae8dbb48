/**
 * Helpers for describing a run's evidence: they read its fields, whose types are unknown,
 * format its values for people, and collect its faults, including nested ones.
 */
import { ADVICE } from '../../errors/advice.generated.ts';
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatTimeUtc,
} from '../../format/format.js';
import { printable, truncate } from './format.ts';

export type Fields = Readonly<Record<string, unknown>>;

/** A problem, in one line, and what to do about it. */
export interface Fault {
  readonly text: string;
  /** Undefined if neither the fault's code nor its kind has advice. */
  readonly todo: string | undefined;
}

const VALUE_CHARACTERS_MAX = 400;
const LABEL_CHARACTERS = 11;
export const INDENT = '  ';

/** Evidence fields that list problems, with doubts and gaps first. */
export const FAULTS: ReadonlySet<string> = new Set([
  'doubts',
  'knownGaps',
  'missing',
  'failures',
  'failed',
  'doubted',
  'violations',
  'problems',
  'quarantined',
  'warnings',
]);
const FAULT_DEPTH_MAX = 3;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z$/;
/**
 * Fields whose numbers identify something. Their digits are not grouped, so that a text
 * search finds them.
 */
export const NAMES = /(?:height|block|epoch|status|code|port|id|version)$/i;

/** Returns each fault once. */
export function listFaults(evidence: Fields): readonly Fault[] {
  const found = collect(evidence, 0);
  return [...new Map(found.map((fault) => [fault.text, fault])).values()];
}

function collect(evidence: Fields, depth: number): Fault[] {
  const { error, reason, ...others } = evidence;
  const isFault = (fault: unknown): boolean =>
    typeof fault === 'string' || isRecord(fault);
  const listed = [...FAULTS].flatMap((name) =>
    items(others[name])
      .filter(isFault)
      .map((fault) => describeFault(fault, name)),
  );
  const own = [error, ...(typeof reason === 'string' ? [reason] : [])];
  const below = depth >= FAULT_DEPTH_MAX ? [] : Object.values(others);
  return [
    ...own.filter(isFault).map((fault) => describeFault(fault, 'error')),
    ...listed,
    ...below.flatMap((value) => collect(fields(value), depth + 1)),
  ];
}

function describeFault(fault: unknown, name: string): Fault {
  const text = shorten(faultText(fault, name));
  const code = /\(([A-Z][A-Z0-9_]+)\)$/.exec(text)?.[1] ?? '';
  const partyId = word(fields(fault)['partyId']);
  const again =
    partyId === ''
      ? undefined
      : `'ledger-mirror export --party ${partyId}' tries it again.`;
  const usual = name === 'knownGaps' ? ADVICE['GAP_KNOWN'] : undefined;
  const todo = ADVICE[code]?.todo ?? again ?? usual?.todo;
  return { text, todo };
}

function faultText(fault: unknown, list: string): string {
  if (typeof fault === 'string') return fault;
  const { message, code, partyId, outcome, error, reasons } = fields(fault);
  if (list === 'knownGaps') return gapText(fields(fault));
  const [reason] = items(reasons);
  const inner = fields(error ?? fields(outcome)['error'] ?? reason ?? fault);
  const said =
    word(message) ||
    word(inner['message']) ||
    word(fields(inner['meta'])['message']);
  const name = (reason === undefined && word(code)) || word(inner['code']);
  const which = word(partyId) === '' ? '' : `party ${word(partyId)}: `;
  const { partyId: _, ...others } = fields(fault);
  const meaning = said || ADVICE[name]?.meaning || itemText(others);
  return `${which}${meaning}${name === '' ? '' : ` (${name})`}`;
}

function gapText({ belowKey, aboveKey, foundAt }: Fields): string {
  const since =
    word(foundAt) === '' ? '' : `, found ${formatTimeUtc(word(foundAt))}`;
  return `rows are missing between ${itemText(belowKey)} and ${itemText(aboveKey)}${since}`;
}

/**
 * Formats an item on one line: the fields of a record, or the elements of a list,
 * separated by commas.
 */
export function itemText(item: unknown, name = ''): string {
  if (Array.isArray(item))
    return shorten(item.map((inner) => itemText(inner, name)).join(', '));
  if (!isRecord(item)) return valueText(name, item);
  const told = Object.entries(item).filter(([, value]) => !isNothing(value));
  const texts = told.map(
    ([inner, value]) => `${humanName(inner)} ${itemText(value, inner)}`,
  );
  return shorten(texts.join(', '));
}

export function isNothing(value: unknown): boolean {
  if (Array.isArray(value)) return value.length === 0;
  if (isRecord(value)) return Object.values(value).every(isNothing);
  return !isPlain(value) || /^(?:0|false)?$/.test(String(value));
}

/**
 * Formats a value by the name of its field. Counts are decimal strings; the name shows
 * which of them are bytes or milliseconds.
 */
export function valueText(name: string, value: unknown): string {
  if (!isPlain(value)) return shorten(JSON.stringify(value) ?? '');
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value === 'number' && !Number.isInteger(value))
    return value.toPrecision(3);
  const text = String(value);
  if (TIME.test(text)) return formatTimeUtc(text);
  if (!/^-?\d{1,30}$/.test(text)) return shorten(text);
  if (/bytes$/i.test(name)) return formatBytes(text);
  if (name.endsWith('Ms')) return formatDuration(Number(text));
  return NAMES.test(name) ? text : formatCount(text);
}

/** Splits the name of a field into words: `leftOutRows` → `left out rows`. */
export function humanName(name: string): string {
  const words = name.replaceAll(/([a-z\d])([A-Z])/g, '$1 $2');
  return printable(words.replaceAll('_', ' ').toLowerCase());
}

export function labelled(label: string, told: string): string {
  return `${INDENT}${label.padEnd(LABEL_CHARACTERS)}  ${shorten(told)}`;
}

export function isPlain(
  value: unknown,
): value is string | number | bigint | boolean {
  return ['string', 'number', 'bigint', 'boolean'].includes(typeof value);
}

export function isRecord(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function fields(value: unknown): Fields {
  return isRecord(value) ? value : {};
}

export function items(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

export function word(value: unknown): string {
  return typeof value === 'string' ? printable(value) : '';
}

function shorten(text: string): string {
  return printable(truncate(text, VALUE_CHARACTERS_MAX));
}

export function endLines(lines: readonly string[]): string {
  return lines.map((line) => `${line}\n`).join('');
}
