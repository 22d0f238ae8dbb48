/** Lines of another CSV in the public service's columns and spellings. */
import { describe, expect, test } from 'vitest';
import {
  type AskedFor,
  type CsvDialect,
  hasTimes,
  translated,
} from '../../src/ledger/dialect.ts';
import type { KnownColumn } from '../../src/ledger/header.ts';
import { fc } from '../support/properties.ts';
import { cutAt, HEADER_13 } from './csv.ts';

const PARTY = 'ab'.repeat(32);
const OTHER = 'cd'.repeat(32);
const ASSET = 'c0'.repeat(32);
const NAMES: readonly (readonly [KnownColumn, string | null])[] = [
  ['vega_time', 'at'],
  ['quantity', 'amount'],
  ['asset_id', 'currency'],
  ['account_from_party_id', 'payer'],
  ['account_to_party_id', 'payee'],
];
const HEADER = 'at;amount;currency;payer;payee;note';

function dialect(changes: Partial<CsvDialect> = {}): CsvDialect {
  return {
    columns: new Map(NAMES),
    delimiter: ';',
    times: 'rfc3339',
    ids: 'hex',
    ...changes,
  };
}

async function translate(
  chunks: readonly (string | Buffer)[],
  given: CsvDialect = dialect(),
  asked: AskedFor = { partyId: PARTY },
): Promise<string> {
  const source = (async function* () {
    for (const chunk of chunks) yield Buffer.from(chunk as string);
  })();
  let text = '';
  for await (const chunk of translated(source, given, asked))
    text += chunk.toString('latin1');
  return text;
}

/** The one row of a CSV, by column. */
async function rowOf(
  line: string,
  changes: Partial<CsvDialect> = {},
): Promise<Record<string, string>> {
  const [header = '', row = ''] = (
    await translate([`${HEADER}\n${line}\n`], dialect(changes))
  ).split('\n');
  const fields = row.split(',');
  return Object.fromEntries(
    header.split(',').map((name, at) => [name, fields[at] ?? '']),
  );
}

describe('a CSV with other column names', () => {
  test('gets our columns, then unknown ones, and the effect on the party', async () => {
    const text = await translate([
      `${HEADER}\n2026-01-02 03:04:05+00;7;${ASSET};${OTHER};${PARTY};x\n`,
    ]);
    const [header, row] = text.split('\n');
    expect(header).toBe(`${HEADER_13},note`);
    expect(row).toBe(
      `2026-01-02 03:04:05+00,7,7,UNSPECIFIED,${ASSET},,${OTHER},,,,${PARTY},,,x`,
    );
  });

  test('is the same however its bytes are cut, line ends and bytes beyond ASCII kept', async () => {
    const row = `2026-01-02 03:04:05+00;7;${ASSET};${PARTY};${OTHER}`;
    const bytes = Buffer.from(
      `${HEADER}\r\n${row};\u00e9\r\n\r\n${row};"a;""b"`,
    );
    const whole = await translate([bytes]);
    expect(Buffer.from(whole, 'latin1').toString()).toContain('\u00e9\r\n\r\n');
    expect(whole.endsWith('"a;""b"')).toBe(true);
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.nat(bytes.length), { maxLength: 6 }),
        async (places) => {
          expect(await translate(cutAt(bytes, places))).toBe(whole);
        },
      ),
    );
  });

  test('a comma between semicolons is put in quotes', async () => {
    const text = await translate([
      `${HEADER}\n2026-01-02 03:04:05+00;7;${ASSET};${PARTY};${OTHER};1,5 "x"\n`,
    ]);
    expect(text).toContain(',"1,5 ""x"""\n');
  });

  test.each([
    ['s', '1767323045', '2026-01-02 03:04:05+00'],
    ['s', '1767323045.1234567', '2026-01-02 03:04:05.1234567+00'],
    ['ms', '1767323045678', '2026-01-02 03:04:05.678+00'],
    ['us', '1767323045678901', '2026-01-02 03:04:05.678901+00'],
    ['ns', '1767323045678901234', '2026-01-02 03:04:05.678901234+00'],
    ['ns', '1', '1970-01-01 00:00:00.000000001+00'],
    ['utc', '2026-01-02T03:04:05.678', '2026-01-02T03:04:05.678+00'],
    ['rfc3339', '2026-01-02T03:04:05Z', '2026-01-02T03:04:05Z'],
    // No time: refused as a row without one, not guessed.
    ['s', '-1', ''],
    ['s', '99999999999999999999', ''],
    ['ms', '2026-01-02', ''],
    ['utc', '2026-01-02T03:04:05Z', ''],
  ] as const)(
    'a time in %s, %s, loses no digit',
    async (times, given, wanted) => {
      const row = await rowOf(`${given};7;${ASSET};${PARTY};${OTHER};x`, {
        times,
      });
      expect(row['vega_time']).toBe(wanted);
    },
  );

  test.each([
    ['0x', `0x${PARTY}`, PARTY],
    ['0x', 'network', 'network'],
    ['base64', Buffer.from(PARTY, 'hex').toString('base64'), PARTY],
    ['base64', 'network', 'network'],
    ['hex', PARTY, PARTY],
  ] as const)(
    'an id in %s, %s, is hex; a word stays',
    async (ids, given, wanted) => {
      const row = await rowOf(
        `2026-01-02 03:04:05+00;7;${ASSET};${given};${OTHER};x`,
        {
          ids,
        },
      );
      expect(row['account_from_party_id']).toBe(wanted);
    },
  );

  test.each([
    [PARTY, OTHER, '-7'],
    [OTHER, PARTY, '7'],
    [PARTY, PARTY, '0'],
  ])('from %s to %s the effect is %s', async (from, to, effect) => {
    expect(
      (await rowOf(`2026-01-02 03:04:05+00;7;${ASSET};${from};${to};x`))[
        'effect'
      ],
    ).toBe(effect);
  });
});

describe('a CSV without some columns', () => {
  const without = (...lacking: readonly KnownColumn[]): CsvDialect =>
    dialect({
      columns: new Map([
        ...NAMES,
        ...lacking.map((name) => [name, null] as const),
      ]),
    });

  test('belongs to the requested party without a party column, and to the configured asset without an asset column', async () => {
    const columns = without(
      'account_from_party_id',
      'account_to_party_id',
      'asset_id',
    );
    const text = await translate(['at;amount\n2026-01-02 03:04:05+00;7\n'], {
      ...columns,
      assetId: ASSET,
    });
    expect(text.split('\n')[1]).toBe(
      `2026-01-02 03:04:05+00,7,-7,UNSPECIFIED,${ASSET},,${PARTY},,,,,,`,
    );
  });

  test('is of one instant where it has no times', async () => {
    const timeless = without('vega_time', 'account_to_party_id');
    expect([hasTimes(timeless), hasTimes(dialect())]).toEqual([false, true]);
    const text = await translate(
      [`amount;currency;payer\n7;${ASSET};${PARTY}\n`],
      timeless,
    );
    expect(text.split('\n')[1]).toMatch(/^1970-01-01 00:00:00\+00,7,/);
  });

  test('is refused with the name of a missing column that is needed or configured', async () => {
    await expect(translate(['at;amount;currency\n'])).rejects.toMatchObject({
      code: 'COLUMNS_MISSING',
      meta: { column: 'account_from_party_id' },
    });
    await expect(
      translate([`at;amount;currency;payer\n`]),
    ).rejects.toMatchObject({
      meta: { column: 'account_to_party_id' },
    });
  });
});

describe('a line that is not a row', () => {
  const ERROR = '{"error":{"code":13,"message":"Internal error","details":[]}}';

  test('is refused where it has another number of fields', async () => {
    await expect(translate([`${HEADER}\n1;2\n`])).rejects.toMatchObject({
      code: 'ROW_FIELDS',
    });
  });

  test.each([
    `${ERROR}\n`,
    `${HEADER}\n2026-01-02 03:04:05+00;7;${ASSET}${ERROR}\n`,
  ])(
    'an error of the service in place of the header, or glued to a row, is that error: %s',
    async (text) => {
      await expect(translate([text])).rejects.toMatchObject({
        code: 'SOURCE_ERROR_IN_STREAM',
      });
    },
  );

  test('passes unchanged where it is the last one and has no line end', async () => {
    expect(
      (await translate([`${HEADER}\n2026-01-02;7`])).endsWith('\n2026-01-02;7'),
    ).toBe(true);
  });
});
