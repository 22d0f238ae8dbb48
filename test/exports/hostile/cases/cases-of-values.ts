/** Times, ids and numbers, as they come and as they should not. */
import {
  DAY,
  makeLedger,
  SECOND,
  writeInstant,
  type Entry,
} from '../ledger.ts';
import {
  csvFor,
  declare,
  honestAnswer,
  layoutCase,
  NO_LIE,
  PARTLY,
  select,
  SUSPICIOUS,
  telling,
  WHOLE,
  type Choice,
  type Expected,
  type HostileCase,
  type Phase,
} from './case.ts';
import {
  change,
  changeIds,
  THIRTEEN,
  TWELVE,
  writeCsv,
  writeZoned,
  type Layout,
} from '../layout.ts';
import { reply } from '../reply.ts';

type Write = (entry: Entry, party: string, at: number) => string;

const times = (write: (time: bigint, at: number) => string): Layout =>
  change(THIRTEEN, { vega_time: (entry, _, at) => write(entry.time, at) });
const clock = (
  name: string,
  meaning: string,
  write: (time: bigint, at: number) => string,
  expected: Expected = WHOLE,
  choice: Choice = {},
): HostileCase => layoutCase(name, meaning, times(write), expected, choice);
const odd = (write: (time: bigint) => string) => (time: bigint, at: number) =>
  at === 3 ? write(time) : writeZoned(time, 0, '+00');

/** Entries as usual, some of them changed. */
const booked =
  (
    bend: (entry: Entry, at: number, now: bigint) => Entry,
    rest: Partial<Parameters<typeof makeLedger>[1]> = {},
  ): Phase['truth'] =>
  (now, party) =>
    makeLedger(now, { seed: 'booked', party, ...rest }).map((entry, at) =>
      bend(entry, at, now),
    );
const quantity = (value: string): Phase['truth'] =>
  booked((entry, at) => (at === 5 ? { ...entry, quantity: value } : entry));
/** A quantity that the truth has, spelled in another way. */
const spelled = (
  name: string,
  meaning: string,
  meant: string,
  written: string,
  expected: Expected,
): HostileCase =>
  layoutCase(
    name,
    meaning,
    change(THIRTEEN, {
      quantity: (entry) =>
        entry.quantity === meant ? written : entry.quantity,
    }),
    expected,
    { truth: quantity(meant) },
  );
/** The field as it is written; the truth has what it means, or what it was before. */
const field = (
  name: string,
  meaning: string,
  column: string,
  write: Write,
  expected: Expected,
): HostileCase =>
  layoutCase(
    name,
    meaning,
    change(THIRTEEN, {
      [column]: (entry, party, at) =>
        at === 5
          ? write(entry, party, at)
          : (THIRTEEN.write[column]?.(entry, party, at) ?? ''),
    }),
    expected,
  );

const UNCOUNTED = telling(PARTLY, 'how many rows were left out, and why');
const base64 = (id: string): string =>
  /^[0-9a-f]{64}$/.test(id) ? Buffer.from(id, 'hex').toString('base64') : id;
const STRANGER = 'ee'.repeat(32);

/** Rows that are no business of the party among its own. */
const withStrangers =
  (layout: Layout, count: number): Phase['answer'] =>
  (request, truth) => {
    const rows = select(request, truth);
    const strangers = rows.slice(0, count).map((entry) => ({
      ...entry,
      from: { ...entry.from, party: STRANGER },
      to: { ...entry.to, party: STRANGER },
    }));
    return reply(writeCsv(layout, [...rows, ...strangers], request.party));
  };

/** One row more in each answer, of a time that cannot be. */
const withTime =
  (time: string): Phase['answer'] =>
  (request, truth) => {
    const [first] = select(request, truth);
    const csv = csvFor(request, truth);
    return reply(
      first === undefined
        ? csv
        : csv +
            csvFor(request, [first])
              .split('\n')[1]
              ?.replace(/^[^,]*/, time) +
            '\n',
    );
  };

export const CASES_OF_VALUES: readonly HostileCase[] = [
  clock('times-of-rfc-3339', 'T, six digits and Z', (time) =>
    writeInstant(time),
  ),
  clock('times-with-z', 'a space, six digits and Z', (time) =>
    writeZoned(time, 0, 'Z'),
  ),
  clock('times-of-india', 'another zone with half an hour', (time) =>
    writeZoned(time, 330, '+05:30'),
  ),
  clock(
    'times-of-two-zones',
    'the zone changes between rows, as on a change of clocks',
    (time, at) =>
      at % 2 === 0 ? writeZoned(time, 120, '+02') : writeZoned(time, 60, '+01'),
  ),
  clock('times-west-of-utc', 'a zone with a minus', (time) =>
    writeZoned(time, -210, '-03:30'),
  ),
  clock(
    'times-with-zone-digits',
    'a zone of four digits without a colon',
    (time) => writeZoned(time, 120, '+0200'),
    NO_LIE,
  ),
  clock(
    'times-of-nine-digits',
    'nine digits of a second, the last three zero',
    (time) => writeZoned(time, 0, '+00', 9),
  ),
  clock(
    'times-of-seven-digits',
    'seven digits of a second, the last one zero',
    (time) => writeZoned(time, 0, '+00', 7),
  ),
  clock(
    'times-with-nanoseconds',
    'nine digits of a second that all count',
    (time) => `${writeZoned(time, 0, '', 6)}499+00`,
  ),
  clock(
    'times-of-lower-case',
    't and z',
    (time) => writeInstant(time).toLowerCase(),
    NO_LIE,
  ),
  clock(
    'times-in-words',
    'Mon, 01 May 2023',
    odd((time) =>
      new Date(Number(time / 1000n)).toUTCString().replace(',', ''),
    ),
    PARTLY,
  ),
  clock(
    'times-as-unix-seconds',
    'a number of seconds; nothing is set',
    (time) => String(time / SECOND),
    telling(NO_LIE, 'the spelling of times can be set'),
    {
      truth: booked((entry) => ({
        ...entry,
        time: (entry.time / SECOND) * SECOND,
      })),
    },
  ),
  clock(
    'times-as-unix-seconds-that-are-set',
    'a number of seconds, as set',
    (time) => String(time / SECOND),
    WHOLE,
    {
      settings: { timeForm: 's' },
      truth: booked((entry) => ({
        ...entry,
        time: (entry.time / SECOND) * SECOND,
      })),
    },
  ),
  clock(
    'time-that-is-empty',
    'one row has no time',
    odd(() => ''),
    PARTLY,
  ),
  clock(
    'time-before-christ',
    'one row is of 44 BC',
    odd(() => '0044-03-15 12:00:00+00 BC'),
    PARTLY,
  ),
  clock(
    'time-of-no-day',
    'one row is of 30 February',
    odd(() => '2023-02-30 10:00:00+00'),
    PARTLY,
  ),
  clock(
    'time-of-infinity',
    'one row is of infinity',
    odd(() => 'infinity'),
    PARTLY,
  ),
  declare(
    'row-before-1970',
    'each answer has a row of 1969 more',
    withTime('1969-12-31 23:59:59+00'),
    UNCOUNTED,
  ),
  declare(
    'row-of-9999',
    'each answer has a row of the end of 9999 more',
    withTime('9999-12-31 23:59:59+00'),
    UNCOUNTED,
  ),
  declare(
    'row-of-10000',
    'each answer has a row of the year 10000 more',
    withTime('10000-01-01 00:00:00+00'),
    UNCOUNTED,
  ),
  declare(
    'row-of-2262',
    'the truth has a row of the year 2262, beyond 64 bits of nanoseconds',
    honestAnswer,
    { ...NO_LIE, cannotKnow: true },
    {
      truth: (now, party) => [
        ...makeLedger(now, { seed: '2262', party }),
        ...makeLedger(9_223_372_036_854_775n + DAY, {
          seed: 'far',
          party,
          rows: 1,
          fromHours: 1,
          toHours: 0,
        }),
      ],
    },
  ),
  layoutCase(
    'ids-in-upper-case',
    'ids in upper-case hex',
    changeIds(THIRTEEN, (id) => (id === 'network' ? id : id.toUpperCase())),
    WHOLE,
  ),
  layoutCase(
    'ids-with-0x',
    'ids are 0x and hex; nothing is set',
    changeIds(THIRTEEN, (id) => (/^[0-9a-f]{64}$/.test(id) ? `0x${id}` : id)),
    telling(NO_LIE, 'the spelling of ids'),
  ),
  layoutCase(
    'ids-with-0x-that-are-set',
    'ids are 0x and hex, as set',
    changeIds(THIRTEEN, (id) => (/^[0-9a-f]{64}$/.test(id) ? `0x${id}` : id)),
    WHOLE,
    { settings: { idForm: '0x' } },
  ),
  layoutCase(
    'ids-of-base64',
    'ids are base64',
    changeIds(THIRTEEN, base64),
    telling(NO_LIE, 'the spelling of ids'),
  ),
  layoutCase(
    'ids-as-bytes',
    'ids of both sides as \\x and hex',
    changeIds(THIRTEEN, (id) => {
      if (id === '""') return '\\x';
      return id === 'network' ? '\\x03' : `\\x${id}`;
    }),
    WHOLE,
  ),
  field(
    'party-in-no-spelling',
    'the party of one row is in no known spelling',
    'account_from_party_id',
    () => '<<me>>',
    PARTLY,
  ),
  declare(
    'strangers-among-thirteen',
    'three rows more, neither side of which is the party',
    withStrangers(THIRTEEN, 3),
    telling(SUSPICIOUS, 'rows of other parties'),
  ),
  declare(
    'strangers-among-twelve',
    'the release sends own rows only, and sends three others',
    withStrangers(TWELVE, 3),
    telling(SUSPICIOUS, 'rows of other parties'),
    { hasEffect: false, ledger: { side: 'from' } },
  ),
  declare(
    'only-strangers',
    'every row belongs to others',
    (request, truth) =>
      reply(
        csvFor(
          request,
          truth.map((entry) => ({
            ...entry,
            from: { ...entry.from, party: STRANGER },
            to: { ...entry.to, party: STRANGER },
          })),
        ),
      ),
    telling({ ...PARTLY, published: 'nothing' }, 'rows of other parties'),
  ),
  layoutCase(
    'quantity-beyond-doubles',
    'a quantity of 2^53+1',
    THIRTEEN,
    WHOLE,
    {
      truth: quantity('9007199254740993'),
    },
  ),
  layoutCase(
    'quantity-of-60-digits',
    'a quantity of 60 digits',
    THIRTEEN,
    WHOLE,
    {
      truth: quantity('123456789'.repeat(7).slice(0, 60)),
    },
  ),
  layoutCase(
    'quantity-of-1000-digits',
    'a quantity of 1,000 digits',
    THIRTEEN,
    WHOLE,
    {
      truth: quantity('7'.repeat(1000)),
    },
  ),
  layoutCase(
    'quantity-of-1001-digits',
    'a quantity of 1,001 digits',
    THIRTEEN,
    NO_LIE,
    {
      truth: quantity('7'.repeat(1001)),
    },
  ),
  layoutCase('quantity-of-zero', 'entries of nothing', THIRTEEN, WHOLE, {
    truth: quantity('0'),
  }),
  spelled(
    'quantity-with-a-plus',
    'a quantity with a sign and zeros in front',
    '5',
    '+0005',
    WHOLE,
  ),
  spelled(
    'quantity-with-an-exponent',
    'a quantity of 1.1e1',
    '11',
    '1.1e1',
    NO_LIE,
  ),
  spelled('quantity-of-decimals', 'a quantity of 1.5', '1.5', '1.5', NO_LIE),
  field(
    'quantity-that-is-empty',
    'a quantity is missing',
    'quantity',
    () => '',
    PARTLY,
  ),
  field(
    'quantity-that-is-no-number',
    'a quantity of NaN',
    'quantity',
    () => 'NaN',
    PARTLY,
  ),
  field(
    'quantity-of-hex',
    'a quantity of 0x10',
    'quantity',
    () => '0x10',
    PARTLY,
  ),
  field(
    'quantity-with-thousands',
    'a quantity of "1,000"',
    'quantity',
    () => '"1,000"',
    PARTLY,
  ),
  layoutCase('balance-that-is-negative', 'a balance of -5', THIRTEEN, NO_LIE, {
    truth: booked((entry, at) =>
      at === 5 ? { ...entry, from: { ...entry.from, balance: '-5' } } : entry,
    ),
  }),
  layoutCase(
    'asset-in-no-spelling',
    'an asset of a word that nobody knows',
    THIRTEEN,
    NO_LIE,
    {
      truth: booked((entry, at) =>
        at === 5 ? { ...entry, asset: 'doubloons' } : entry,
      ),
    },
  ),
  layoutCase('asset-that-is-empty', 'an asset is missing', THIRTEEN, NO_LIE, {
    truth: booked((entry, at) => (at === 5 ? { ...entry, asset: '' } : entry)),
  }),
  layoutCase(
    'formula',
    'a field that a spreadsheet would run, in a column that nobody knows',
    change(
      THIRTEEN,
      { note: () => '"=HYPERLINK(""http://127.0.0.1/"")"' },
      { columns: [...THIRTEEN.columns, 'note'] },
    ),
    WHOLE,
  ),
  layoutCase(
    'rows-of-one-second',
    'all rows are of one second',
    THIRTEEN,
    WHOLE,
    {
      truth: booked((entry, at, now) => ({
        ...entry,
        time: now - 10n * DAY + BigInt(at),
      })),
    },
  ),
  layoutCase(
    'rows-of-one-instant',
    'all rows are of one microsecond',
    THIRTEEN,
    WHOLE,
    {
      truth: booked((entry, _, now) => ({ ...entry, time: now - 10n * DAY })),
    },
  ),
  layoutCase(
    'rows-at-midnights',
    'rows lie exactly on borders of days, and a microsecond before them',
    THIRTEEN,
    WHOLE,
    {
      truth: booked((entry, at) => ({
        ...entry,
        time: (entry.time / DAY) * DAY - BigInt(at % 2),
      })),
    },
  ),
  layoutCase('rows-alike', 'every row comes five times', THIRTEEN, WHOLE, {
    truth: (now, party) =>
      makeLedger(now, { seed: 'alike', party, rows: 30 }).flatMap((entry) => [
        entry,
        entry,
        entry,
        entry,
        entry,
      ]),
  }),
  layoutCase('row-alone', 'the party has one entry', THIRTEEN, WHOLE, {
    ledger: { rows: 1 },
  }),
  layoutCase('years-of-rows', 'rows of ten years', THIRTEEN, WHOLE, {
    ledger: { fromHours: 24 * 3650, rows: 400 },
  }),
  declare(
    'unsorted',
    'rows come in no order, another one each time',
    (request, truth) =>
      reply(
        writeCsv(
          THIRTEEN,
          shuffle(select(request, truth), request.n),
          request.party,
        ),
      ),
    WHOLE,
  ),
  declare(
    'newest-first',
    'rows come newest first',
    (request, truth) =>
      reply(
        writeCsv(THIRTEEN, select(request, truth).toReversed(), request.party),
      ),
    WHOLE,
  ),
];

function shuffle(entries: readonly Entry[], n: number): readonly Entry[] {
  const place = (at: number): number => ((at + 1) * (7919 + 2 * n)) % 1009;
  return entries
    .map((entry, at) => ({ entry, at: place(at) }))
    .toSorted((a, b) => a.at - b.at)
    .map(({ entry }) => entry);
}
