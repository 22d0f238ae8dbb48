/**
 * Describes what a run did, with one sentence for each of its parts, in chronological
 * order. If there is a known reason why two figures differ, the sentence gives it.
 */
import { type Fields, fields, valueText, word } from './evidence.ts';
import {
  formatBytes,
  formatCount,
  formatPlural,
  formatTimeUtc,
} from '../../format/format.js';

/** A label, and the text next to it. */
type Sentence = readonly [label: string, text: string];
type Tell = (part: Fields) => string;

/**
 * Returns the sentences of one run.
 * @param run `{ kind, verdict, evidence }`
 */
export function runSentences(run: Fields): readonly Sentence[] {
  const kind = word(run['kind']);
  const evidence = fields(run['evidence']);
  // Any other verdict is already in the first line of the run's report.
  const proven = run['verdict'] === 'complete' ? { verdict: 'complete' } : {};
  if (kind !== 'nightly')
    return partSentences(kind, kind, { ...evidence, ...proven });
  const lists = Object.entries(fields(evidence['lists']));
  return [
    ...lists.flatMap(([name, list]) =>
      partSentences(name, 'sync', fields(list)),
    ),
    ...Object.keys(PARTS)
      .filter((name) => name in evidence)
      .flatMap((name) => partSentences(name, name, fields(evidence[name]))),
  ];
}

/**
 * For each part of a run: the field that is present if the part has a result, and the
 * function that describes the result.
 */
const PARTS: Readonly<Record<string, readonly [proof: string, tell: Tell]>> = {
  sync: ['rows', syncText],
  export: ['rows', exportText],
  exports: ['parties', nightExportsText],
  merged: ['segments', mergedText],
  load: ['rows', loadText],
  lake: ['version', lakeText],
  verify: ['checked', verifyText],
  sourceProof: ['verdict', sourceProofText],
  source: ['requests', sourceText],
};

function partSentences(label: string, kind: string, part: Fields): Sentence[] {
  const [proof = '', tell] = PARTS[kind] ?? [];
  const verdict = word(part['verdict']);
  const mark = verdict === '' || verdict === 'complete' ? '' : `${verdict}: `;
  if (tell === undefined || part[proof] === undefined)
    return mark === '' ? [] : [[label, `${mark}it did not get far`]];
  const text = tell(part);
  if (text === '') return [];
  return [
    [label, `${mark}${text}`],
    ...partSentences('lake', 'lake', fields(part['lake'])),
  ];
}

/**
 * Describes a sync of a list. Two quirks of the source are visible here: it lists some
 * checkpoints twice, and it lists `network` among the parties, although `rows` does not
 * count it.
 */
function syncText(sync: Fields): string {
  const rows = whole(sync['rows']);
  const isNetworkListed = sync['network'] === 'stored' && rows > 0n;
  const list = word(sync['list']);
  const listed = isNetworkListed
    ? `${plural(rows, 'party', 'parties')} and network listed`
    : `${plural(rows, 'row')} listed`;
  const unique = whole(fields(sync['audit'])['served']);
  const repeats =
    list === 'checkpoints' && unique > 0n && unique < rows
      ? ` (${amount(unique)} checkpoints: the source lists some twice, and each is held once)`
      : '';
  const height = word(sync['asOfHeight']);
  const proven = sync['verdict'] === 'complete' ? 'proven complete ' : '';
  const asOf = height === '' ? '' : `; ${proven}as of block ${height}`;
  const times =
    whole(sync['readings']) > 1n ? ` ${amount(sync['readings'])} times` : '';
  const read =
    `read${times} in ${plural(sync['pages'], 'page')} ` +
    `by ${plural(sync['requests'], 'request')}`;
  return `${listed}${repeats}, ${newOf(sync['newRows'], rows)}; ${read}${asOf}`;
}

function newOf(newRows: unknown, rows: bigint): string {
  const found = whole(newRows);
  if (found === 0n) return 'none of them new';
  return found === rows ? 'all new' : `${amount(found)} of them new`;
}

function exportText(part: Fields): string {
  const closedTo = word(part['closedTo']);
  const closed =
    closedTo === '' ? '' : `; closed up to ${formatTimeUtc(closedTo)}`;
  return (
    `${publishedText(part['rows'], part['replacedRows'])}, ` +
    `${formatBytes(whole(part['bytes']))} as CSV, in ` +
    `${plural(part['segments'], 'segment')}${closed}`
  );
}

/**
 * Describes the published rows. An open segment is published again with its new rows, so
 * not all of its rows are new.
 */
function publishedText(rows: unknown, replaced: unknown): string {
  const grown = whole(rows) - whole(replaced);
  const entries = plural(grown < 0n ? 0n : grown, 'new entry', 'new entries');
  if (whole(replaced) === 0n) return entries;
  return (
    `${entries} (${plural(rows, 'row')} published, of which ${amount(replaced)} ` +
    'replace earlier ones: an open segment is published again as a whole)'
  );
}

function nightExportsText(part: Fields): string {
  const notDue = whole(part['notDue']);
  return [
    `${plural(part['parties'], 'ledger')} asked: ` +
      `${publishedText(part['newRows'], part['replacedRows'])} in ` +
      plural(part['newSegments'], 'segment'),
    ...someText(part['failed'], 'failed'),
    ...someText(part['suspicious'], 'suspicious'),
    ...someText(part['unasked'], 'not asked in this run'),
    ...someText(part['deferred'], 'deferred to a later night'),
    ...(notDue > 0n ? [`${amount(notDue)} were not due`] : []),
  ].join('; ');
}

/** Returns an empty string if nothing was merged. */
function mergedText(part: Fields): string {
  if (whole(part['segments']) === 0n) return '';
  return (
    `${plural(part['segments'], 'small segment')} of ` +
    `${plural(part['ledgers'], 'ledger')} merged into ${amount(part['into'])}`
  );
}

/** Describes the result of the comparison with a source that is itself a mirror. */
function sourceProofText(part: Fields): string {
  const said = word(part['says']);
  if (said === '') return word(part['problem']);
  return [
    said,
    ...someText(part['askedAgain'], 'ledgers asked again'),
    ...someText(part['differing'], 'ledgers in doubt'),
  ].join('; ');
}

function loadText(part: Fields): string {
  return [
    `${plural(part['rows'], 'row')} of ${plural(part['segments'], 'segment')} ` +
      'brought into the warehouse',
    ...someText(part['quarantinedCount'], 'segments quarantined'),
    ...someText(
      part['effectsContradicted'],
      'rows whose effect contradicts their accounts',
    ),
  ].join('; ');
}

function lakeText(part: Fields): string {
  return (
    `${plural(part['rows'], 'row')} over all tables in ` +
    `${plural(part['files'], 'file')}, ${formatBytes(whole(part['bytes']))}; ` +
    `version ${valueText('version', part['version'])}`
  );
}

function verifyText(part: Fields): string {
  const checked = fields(part['checked']);
  const problems = whole(part['problemCount']);
  return (
    `${plural(checked['segments'], 'segment')} ` +
    `(${formatBytes(whole(checked['objectBytes']))} as stored), ` +
    `${amount(checked['warehouseRows'])} entries in the warehouse and ` +
    `${amount(checked['lakeRows'])} rows over all tables of the lake compared: ` +
    (problems === 0n ? 'every sum agrees' : plural(problems, 'problem'))
  );
}

function sourceText(part: Fields): string {
  const counts = Object.values(fields(part['requests'])).map(whole);
  const requests = counts.reduce((sum, count) => sum + count, 0n);
  const retries = whole(part['retries']);
  const again = retries > 0n ? `, ${amount(retries)} of them again` : '';
  return (
    `${plural(requests, 'request')} to the source${again}, ` +
    `${formatBytes(whole(part['bytes']))} received`
  );
}

/** Returns an empty list if the count is zero. */
function someText(count: unknown, what: string): string[] {
  return whole(count) > 0n ? [`${amount(count)} ${what}`] : [];
}

function whole(value: unknown): bigint {
  if (typeof value === 'bigint') return value;
  const isText = typeof value === 'string' || typeof value === 'number';
  return isText && /^\d{1,40}$/.test(String(value)) ? BigInt(value) : 0n;
}

function amount(value: unknown): string {
  return formatCount(whole(value));
}

function plural(value: unknown, one: string, many?: string): string {
  return formatPlural(whole(value), one, many);
}
