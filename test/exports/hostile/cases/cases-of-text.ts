/** The text of the CSV: ends, quotes, columns, bytes, sizes. */
import { DAY, makeLedger, type Entry } from '../ledger.ts';
import {
  csvFor,
  declare,
  layoutCase,
  NO_LIE,
  PARTLY,
  REFUSED,
  select,
  SUSPICIOUS,
  telling,
  textCase,
  WHOLE,
  type Expected,
  type ExportRequest,
  type HostileCase,
  type Phase,
} from './case.ts';
import {
  change,
  rename,
  THIRTEEN,
  writeCsv,
  writeHeader,
  writeRow,
  type Layout,
} from '../layout.ts';
import { reply, type Part } from '../reply.ts';

type Field = (entry: Entry, party: string, at: number) => string;

/** A fourteenth column that nobody knows. */
const withColumn = (name: string, field: Field): Layout =>
  change(THIRTEEN, { [name]: field }, { columns: [...THIRTEEN.columns, name] });
const only = (columns: readonly string[]): Layout => ({ ...THIRTEEN, columns });
const without = (column: string): Layout =>
  only(THIRTEEN.columns.filter((name) => name !== column));
const SETTING = (setting: string): Expected =>
  telling(
    PARTLY,
    `what was expected in the header line, and that ${setting} can be set`,
  );
const ONE_MEGABYTE = 1024 * 1024;
const HALF_WITHOUT_TIMES: Phase = {
  clock: 0,
  truth: (now, party) =>
    makeLedger(now, { seed: 'no-time-and-fewer-rows', party }).slice(50),
  answer: (request, truth) =>
    reply(csvFor(request, truth, without('vega_time'))),
  expected: { ...SUSPICIOUS, published: 'exactly' },
};

/** One line of the answer is changed: that of the row in the middle. */
const bendMiddle =
  (bend: (line: string) => string) =>
  (csv: string): string => {
    const lines = csv.split('\n');
    const at = Math.floor(lines.length / 2);
    return lines.length < 4
      ? csv
      : lines
          .map((line, index) => (index === at ? bend(line) : line))
          .join('\n');
  };

export const CASES_OF_TEXT: readonly HostileCase[] = [
  textCase(
    'byte-order-mark',
    'a byte order mark before the header',
    (csv) => `\uFEFF${csv}`,
    WHOLE,
  ),
  layoutCase(
    'crlf',
    'lines end with CRLF',
    { ...THIRTEEN, lineEnd: '\r\n' },
    WHOLE,
  ),
  layoutCase(
    'quoted',
    'every field is quoted',
    { ...THIRTEEN, isQuoted: true },
    WHOLE,
  ),
  declare(
    'mark-quotes-and-crlf',
    'a byte order mark, quotes and CRLF',
    (request, truth) =>
      reply(
        `\uFEFF${csvFor(request, truth, { ...THIRTEEN, isQuoted: true, lineEnd: '\r\n' })}`,
      ),
    WHOLE,
  ),
  textCase(
    'blank-lines',
    'blank lines between rows',
    (csv) => csv.replaceAll('\n', '\n\n'),
    WHOLE,
  ),
  textCase(
    'line-ends-before-the-header',
    'three line ends before the header',
    (csv) => `\n\n\n${csv}`,
    WHOLE,
  ),
  layoutCase(
    'semicolons',
    'fields are parted by semicolons; nothing is set',
    { ...THIRTEEN, delimiter: ';' },
    SETTING('the delimiter'),
  ),
  layoutCase(
    'semicolons-that-are-set',
    'fields are parted by semicolons, as set',
    { ...THIRTEEN, delimiter: ';' },
    WHOLE,
    { settings: { delimiter: ';' } },
  ),
  layoutCase(
    'tabs-that-are-set',
    'fields are parted by tabs, as set',
    { ...THIRTEEN, delimiter: '\t' },
    WHOLE,
    { settings: { delimiter: '\t' } },
  ),
  layoutCase(
    'other-name-of-time',
    'the time column has another name; nothing is set',
    rename(THIRTEEN, 'vega_time', 'booked_at'),
    SETTING('the name of the time column'),
  ),
  layoutCase(
    'other-name-of-time-that-is-set',
    'the time column has another name, as set',
    rename(THIRTEEN, 'vega_time', 'booked_at'),
    WHOLE,
    { settings: { timeColumn: 'booked_at' } },
  ),
  layoutCase(
    'other-name-of-asset-that-is-set',
    'the asset column has another name, as set',
    rename(THIRTEEN, 'asset_id', 'currency'),
    WHOLE,
    { settings: { assetColumn: 'currency' } },
  ),
  layoutCase(
    'other-name-of-party-that-is-set',
    'a party column has another name, as set',
    rename(THIRTEEN, 'account_from_party_id', 'payer'),
    NO_LIE,
    { settings: { partyColumn: 'payer' }, lacks: ['account_from_party_id'] },
  ),
  layoutCase(
    'other-order',
    'columns in another order',
    only(THIRTEEN.columns.toReversed()),
    WHOLE,
  ),
  layoutCase(
    'upper-case-names',
    'column names in upper case',
    upperCase(),
    NO_LIE,
  ),
  layoutCase(
    'unknown-column',
    'a column that nobody knows',
    withColumn('transfer_id', (_, __, at) => `t-${at}`),
    WHOLE,
  ),
  layoutCase(
    'unknown-column-of-json',
    'a column of quoted JSON with commas and quotes',
    withColumn('meta', () => '"{""a"":[1,2],""b"":""x,y""}"'),
    WHOLE,
  ),
  layoutCase(
    'unknown-column-of-lines',
    'quoted line ends in a column',
    withColumn('note', (_, __, at) => `"line ${at}\nand another\r\nthird"`),
    WHOLE,
  ),
  layoutCase(
    'column-called-proto',
    'a column called __proto__',
    withColumn('__proto__', () => 'x'),
    WHOLE,
  ),
  layoutCase(
    'hundred-columns',
    'a hundred columns that nobody knows',
    hundredColumns(),
    WHOLE,
  ),
  layoutCase(
    'column-named-twice',
    'two columns have the same name',
    only([...THIRTEEN.columns, 'quantity']),
    PARTLY,
  ),
  layoutCase(
    'no-quantity',
    'a known column is missing',
    without('quantity'),
    NO_LIE,
    {
      lacks: ['quantity'],
    },
  ),
  layoutCase(
    'no-time',
    'there is no time column; nothing is set',
    without('vega_time'),
    NO_LIE,
    {
      lacks: ['vega_time'],
    },
  ),
  layoutCase(
    'no-time-as-set',
    'there is no time column, as set: one open segment, replaced whole',
    without('vega_time'),
    { ...WHOLE, verdicts: ['complete', 'incomplete'], published: 'at-most' },
    { settings: { timeColumn: 'none' }, lacks: ['vega_time'] },
  ),
  layoutCase(
    'no-time-and-fewer-rows',
    'there is no time column, as set; the second run gets half of the rows, and these are all there are',
    without('vega_time'),
    WHOLE,
    {
      settings: { timeColumn: 'none' },
      lacks: ['vega_time'],
      followedBy: [HALF_WITHOUT_TIMES],
    },
  ),
  textCase(
    'header-twice',
    'the header line comes again in the middle',
    (csv) =>
      csv.replace(/\n([^\n]*)\n/, (line) => `${line}${writeHeader(THIRTEEN)}`),
    PARTLY,
  ),
  textCase(
    'header-missing',
    'rows without a header line',
    (csv) => csv.slice(csv.indexOf('\n') + 1) || 'x,y\n',
    PARTLY,
  ),
  textCase(
    'too-few-fields',
    'one row lacks its last field',
    bendMiddle((line) => line.slice(0, line.lastIndexOf(','))),
    PARTLY,
  ),
  textCase(
    'too-many-fields',
    'one row has a field more',
    bendMiddle((line) => `${line},9`),
    PARTLY,
  ),
  textCase(
    'open-quote',
    'a quote opens in the middle and never closes',
    bendMiddle((line) => line.replace(',', ',"')),
    PARTLY,
  ),
  textCase(
    'quote-inside-a-field',
    'a quote stands in the middle of a plain field',
    bendMiddle((line) => line.replace('TRANSFER', 'TRANS"FER')),
    PARTLY,
  ),
  textCase(
    'nul-in-an-odd-row',
    'NUL bytes in a row with too few fields',
    bendMiddle((line) => `\0\0${line.slice(0, 40)}`),
    PARTLY,
  ),
  textCase(
    'nul-in-a-time',
    'NUL bytes in place of a time',
    bendMiddle((line) => line.replace(/^[^,]*/, '\0\0\0\0')),
    PARTLY,
  ),
  layoutCase(
    'nul-in-an-unknown-column',
    'NUL bytes in a column that nobody knows',
    withColumn('note', () => 'a\0b'),
    NO_LIE,
  ),
  layoutCase(
    'nul-in-a-column-name',
    'NUL bytes in the name of a column',
    withColumn('no\0te', () => 'x'),
    NO_LIE,
  ),
  textCase(
    'hole-of-zeros',
    '4 KiB of NUL bytes in the middle',
    bendMiddle((line) => line + '\0'.repeat(4096)),
    PARTLY,
  ),
  declare(
    'not-utf-8',
    'bytes that are not UTF-8 in a column that nobody knows',
    (request, truth) =>
      reply([
        Buffer.from(
          csvFor(
            request,
            truth,
            withColumn('note', () => 'caf\u00e9'),
          ),
          'latin1',
        ),
      ]),
    WHOLE,
  ),
  layoutCase(
    'row-of-5-megabytes',
    'a field of 5 MB in a column that nobody knows',
    withColumn('note', (_, __, at) =>
      at === 3 ? 'x'.repeat(5 * ONE_MEGABYTE) : 'x',
    ),
    WHOLE,
    { ledger: { rows: 10 } },
  ),
  declare(
    'row-of-100-megabytes',
    'one row of 100 MB',
    (request, truth) =>
      reply([
        csvFor(request, truth),
        ...Array.from({ length: 100 }, () => Buffer.alloc(ONE_MEGABYTE, 'x')),
      ]),
    PARTLY,
    { isHeavy: true },
  ),
  declare(
    'endless-header',
    'a header line that never ends',
    () => reply(endless('vega_time', () => ',column'.repeat(5000))),
    REFUSED,
    { isHeavy: true, isSlow: true },
  ),
  declare(
    'endless-row',
    'a row that never ends',
    (request, truth) =>
      reply(endless(csvFor(request, truth), () => 'x'.repeat(60_000))),
    PARTLY,
    { isHeavy: true, isSlow: true },
  ),
  declare(
    'endless-rows-outside-the-range',
    'rows of before or after the range, for ever',
    endlessOutside,
    PARTLY,
    {
      isHeavy: true,
      isSlow: true,
    },
  ),
  textCase(
    'whole-answer-twice',
    'the whole CSV comes twice',
    (csv) => csv + csv,
    PARTLY,
  ),
];

function upperCase(): Layout {
  const columns = THIRTEEN.columns.map((name) => name.toUpperCase());
  return {
    ...THIRTEEN,
    columns,
    write: Object.fromEntries(
      THIRTEEN.columns.map((name) => [
        name.toUpperCase(),
        THIRTEEN.write[name] ?? (() => ''),
      ]),
    ),
  };
}

function hundredColumns(): Layout {
  const names = Array.from({ length: 100 }, (_, at) => `column_${at}`);
  return change(
    THIRTEEN,
    Object.fromEntries(names.map((name) => [name, () => name.slice(7)])),
    {
      columns: [...THIRTEEN.columns, ...names],
    },
  );
}

function* endless(begin: string, next: () => string): Iterable<Part> {
  yield begin;
  for (;;) yield next();
}

function endlessOutside(
  request: ExportRequest,
  truth: readonly Entry[],
): ReturnType<typeof reply> {
  const [first] = select(request, truth);
  const isBounded = request.from !== undefined && request.from > DAY;
  const time = isBounded
    ? (request.from ?? 0n) - DAY
    : (request.to ?? -2n * DAY) + DAY;
  const row =
    first === undefined
      ? ''
      : writeRow(THIRTEEN, { ...first, time }, request.party);
  return reply(
    endless(
      writeCsv(THIRTEEN, select(request, truth), request.party),
      () => row.repeat(200) || ' ',
    ),
  );
}
