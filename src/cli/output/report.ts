/** A run's document as a summary for people: how it ended, then its evidence, nested as it is. */
import { formatBytes, formatCount, formatDuration, printable, truncate } from './format.ts';

const INDENT = '  ';
const DEPTH_MAX = 5;
const ITEMS_MAX = 20;
const VALUE_CHARACTERS_MAX = 400;

/**
 * @param document `{ runId, kind, subject, state, verdict, startedAt, finishedAt, evidence }`
 * @returns lines, each ended; values of `evidence` in their order, an `error` first
 */
export function runReport(document: Readonly<Record<string, unknown>>): string {
  const { runId, evidence } = document;
  const facts = isRecord(evidence) ? evidenceLines(evidence, 1) : [];
  return [runHead(document), `${INDENT}run  ${word(runId)}`, ...facts].map((line) => `${line}\n`).join('');
}

/** `✓ sync parties: complete in 3.2 s` */
export function runHead(document: Readonly<Record<string, unknown>>): string {
  const { kind, subject, state, verdict, startedAt, finishedAt } = document;
  const tookMs = Date.parse(word(finishedAt)) - Date.parse(word(startedAt));
  const took = Number.isNaN(tookMs) ? '' : ` in ${formatDuration(tookMs)}`;
  return `${verdict === 'complete' ? '✓' : '!'} ${word(kind)} ${word(subject)}: ${word(verdict ?? state)}${took}`;
}

function evidenceLines(evidence: Readonly<Record<string, unknown>>, depth: number): string[] {
  const errorsFirst = entriesOf(evidence).toSorted(
    ([a], [b]) => Number(b === 'error') - Number(a === 'error'),
  );
  const plain = errorsFirst.filter(([, value]) => isPlain(value));
  const width = Math.max(0, ...plain.map(([name]) => humanName(name).length));
  return errorsFirst.flatMap(([name, value]) => {
    const [indent, label] = [INDENT.repeat(depth), humanName(name)];
    if (isRecord(value) && depth < DEPTH_MAX)
      return [`${indent}${label}`, ...evidenceLines(value, depth + 1)];
    if (!Array.isArray(value) || depth >= DEPTH_MAX)
      return [`${indent}${isPlain(value) ? label.padEnd(width) : label}  ${valueText(name, value)}`];
    if (value.length === 0) return [`${indent}${label}  none`];
    const more = value.length - ITEMS_MAX;
    return [
      `${indent}${label} (${formatCount(value.length)})`,
      ...value.slice(0, ITEMS_MAX).map((item) => `${indent}${INDENT}- ${itemText(item)}`),
      ...(more > 0 ? [`${indent}${INDENT}… ${formatCount(more)} more`] : []),
    ];
  });
}

/** One item in one line: its fields side by side. */
function itemText(item: unknown): string {
  if (!isRecord(item)) return valueText('', item);
  const parts = entriesOf(item).map(
    ([name, value]) =>
      `${humanName(name)} ${isPlain(value) ? valueText(name, value) : JSON.stringify(value)}`,
  );
  return shorten(parts.join(', '));
}

function entriesOf(record: Readonly<Record<string, unknown>>): [string, unknown][] {
  return Object.entries(record).filter(([, value]) => value !== null && value !== undefined);
}

function isPlain(value: unknown): boolean {
  return ['string', 'number', 'bigint', 'boolean'].includes(typeof value);
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Counts arrive as decimal text; names say which of them are bytes or milliseconds. */
function valueText(name: string, value: unknown): string {
  if (!isPlain(value)) return shorten(JSON.stringify(value));
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value === 'number' && !Number.isInteger(value)) return String(value);
  const text = String(value);
  if (!/^-?\d{1,30}$/.test(text)) return shorten(text);
  if (/bytes$/i.test(name)) return formatBytes(text);
  if (name.endsWith('Ms')) return formatDuration(Number(text));
  // Heights, epochs and statuses are names more than quantities: grouping would hide them from a search.
  return /(?:height|block|epoch|status|code|port|id)$/i.test(name) ? text : formatCount(text);
}

/** `leftOutRows` → `left out rows` */
function humanName(name: string): string {
  return printable(
    name
      .replaceAll(/([a-z\d])([A-Z])/g, '$1 $2')
      .replaceAll('_', ' ')
      .toLowerCase(),
  );
}

function word(value: unknown): string {
  return typeof value === 'string' ? printable(value) : '';
}

function shorten(text: string): string {
  return printable(truncate(text, VALUE_CHARACTERS_MAX));
}
