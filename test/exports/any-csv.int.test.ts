/**
 * Sources that write another CSV, through the real commands: a plain server of its own,
 * both lists, export, load, query.
 */
import { describe, expect, test } from 'vitest';
import { openHome, type Settings } from '../cli/mirror-home.ts';
import { openFreshDatabase } from '../support/database.ts';
import { freshRedis } from '../support/servers/redis.ts';
import {
  HOUR,
  makeLedger,
  type Entry,
  writeInstant,
} from './hostile/ledger.ts';
import { type HostileCase, layoutCase, WHOLE } from './hostile/cases/case.ts';
import { change, changeIds, type Layout, THIRTEEN } from './hostile/layout.ts';
import { startHostileSource } from './hostile/start.ts';

const redis = await freshRedis();
const COLUMNS = `epoch_us(vega_time)::varchar, quantity::varchar, coalesce(effect::varchar, ''), transfer_type, asset_id,
  coalesce(account_from_party_id, ''), coalesce(account_to_party_id, ''), coalesce(extra::varchar, '')`;
const SQL = `select concat_ws(' ', ${COLUMNS}) as line from ledger_entries order by line`;

interface Source {
  readonly meaning: string;
  readonly settings: Settings;
  readonly layout: Layout;
  /** As the mirror should hold it, in the columns of the query. */
  readonly expected: (
    entry: Entry,
    party: string,
  ) => readonly (string | bigint)[];
}

const hex = (id: string): boolean => /^[0-9a-f]{64}$/.test(id);

function only(
  layout: Layout,
  write: Layout['write'],
  rest: Partial<Layout> = {},
): Layout {
  return change(layout, write, { ...rest, columns: Object.keys(write) });
}

function effectOn(party: string, entry: Entry): string {
  if (entry.from.party === entry.to.party) return '0';
  return entry.to.party === party ? entry.quantity : `-${entry.quantity}`;
}

/**
 * Amount, effect, type, asset and both parties, which every source with parties tells.
 */
function named(entry: Entry, party: string): readonly string[] {
  return [
    entry.quantity,
    effectOn(party, entry),
    entry.transfer,
    entry.asset,
    entry.from.party,
    entry.to.party,
  ];
}

const OTHER_NAMES: Source = {
  meaning:
    'other names, semicolons, milliseconds and 0x, and a column with commas that nobody knows',
  settings: {
    EXPORT_COLUMNS:
      'vega_time=booked_at, quantity=amount, asset_id=currency, transfer_type=kind, account_from_party_id=payer, account_to_party_id=payee',
    EXPORT_DELIMITER: 'semicolon',
    EXPORT_TIME_FORMAT: 'ms',
    EXPORT_ID_FORMAT: '0x',
  },
  layout: only(
    THIRTEEN,
    {
      payer: ({ from }) => (hex(from.party) ? `0x${from.party}` : from.party),
      payee: ({ to }) => (hex(to.party) ? `0x${to.party}` : to.party),
      kind: ({ transfer }) => transfer,
      amount: ({ quantity }) => quantity,
      currency: ({ asset }) => `0x${asset}`,
      memo: () => 'paid, as agreed',
      booked_at: ({ time }) => String(time / 1000n),
    },
    { delimiter: ';' },
  ),
  expected: (entry, party) => [
    (entry.time / 1000n) * 1000n,
    ...named(entry, party),
    '{"memo": "paid, as agreed"}',
  ],
};

const base64 = changeIds(THIRTEEN, (id) =>
  hex(id) ? Buffer.from(id, 'hex').toString('base64') : id,
);
const OTHER_SPELLINGS: Source = {
  meaning:
    'known names, tabs, times without a zone, ids in base64, and no balances',
  settings: {
    EXPORT_DELIMITER: 'tab',
    EXPORT_TIME_FORMAT: 'utc',
    EXPORT_ID_FORMAT: 'base64',
  },
  layout: change(
    base64,
    {
      vega_time: ({ time }) =>
        writeInstant(time).slice(0, -1).replace('T', ' '),
    },
    {
      delimiter: '\t',
      columns: THIRTEEN.columns.filter((name) => !/balance|market/.test(name)),
    },
  ),
  expected: (entry, party) => [entry.time, ...named(entry, party), ''],
};

const ASSET = 'a5'.repeat(32);
const NO_TIMES: Source = {
  meaning: 'an amount and a note: no times, no parties, no assets',
  settings: {
    EXPORT_COLUMNS:
      'vega_time=none,asset_id=none,account_from_party_id=none,quantity=amount',
    SOURCE_ASSETS: ASSET,
  },
  layout: only(THIRTEEN, {
    amount: ({ quantity }) => quantity,
    note: () => '"a ""note"", quoted"',
  }),
  expected: (entry, party) => [
    0n,
    entry.quantity,
    `-${entry.quantity}`,
    'UNSPECIFIED',
    ASSET,
    party,
    '',
    String.raw`{"note": "a \"note\", quoted"}`,
  ],
};

/** What was booked until ten days ago, and then all of it. */
function growing(name: string, { meaning, layout }: Source): HostileCase {
  const until = (hours: number) => (now: bigint, party: string) =>
    makeLedger(now, { seed: name, party, rows: 90 }).filter(
      ({ time }) => time <= now - BigInt(hours) * HOUR,
    );
  const one = layoutCase(name, meaning, layout, WHOLE, {
    truth: until(240),
    clock: -240,
  });
  return { ...one, followedBy: [{ ...one, truth: until(0), clock: 0 }] };
}

describe.concurrent.each([
  ['other-names', OTHER_NAMES, redis.url],
  ['other-spellings', OTHER_SPELLINGS, undefined],
  ['no-times', NO_TIMES, undefined],
])('a source of another CSV (%s)', (name, source, redisUrl) => {
  test(`holds exactly what the truth says, night after night: ${source.meaning}`, async () => {
    const one = growing(name, source);
    const host = await startHostileSource({ cases: [one] });
    await using database = await openFreshDatabase();
    await using home = await openHome({
      SOURCE_URL: host.url,
      DATABASE_URL: database.url,
      REDIS_URL: redisUrl,
      ...source.settings,
    });
    const party = host.partyOf(name);
    try {
      for (const phase of [one, ...one.followedBy]) {
        if (phase !== one) host.advance(name);
        const night = await home.json(['nightly']);
        expect([night.code, night.document.verdict]).toEqual([0, 'complete']);
        const found = await home.json(['query', SQL]);
        const lines = (found.document['rows'] as { line: string }[]).map(
          ({ line }) => line,
        );
        const truth = phase
          .truth(host.now, party)
          .map((entry) => source.expected(entry, party).join(' '));
        expect(lines).toEqual(truth.toSorted());
      }
    } finally {
      await host.close();
    }
  });
});

describe('the settings of another CSV', () => {
  test('what is not accepted is told with its name, all at once, and nothing is asked', async () => {
    await using home = await openHome({
      SOURCE_URL: 'http://127.0.0.1:9',
      EXPORT_COLUMNS: 'vega_time=at,asset_id=none',
      EXPORT_DELIMITER: ';',
      EXPORT_TIME_FORMAT: 'unix',
      EXPORT_ID_FORMAT: 'HEX',
    });
    const { code, stderr } = await home.run(['nightly']);
    expect(code).toBe(1);
    expect(stderr).toContain(
      'EXPORT_DELIMITER: ";" is not accepted; give comma, semicolon, tab or pipe',
    );
    expect(stderr).toContain('EXPORT_TIME_FORMAT: "unix" is not accepted');
    expect(stderr).toContain('EXPORT_ID_FORMAT: "HEX" is not accepted');
    expect(stderr).toContain(
      'EXPORT_COLUMNS: asset_id=none leaves open which asset the rows are of',
    );
  });

  test.each([
    ['unnamed', { ...THIRTEEN, delimiter: ';' }, {}, 'set EXPORT_DELIMITER'],
    [
      'misnamed',
      THIRTEEN,
      { EXPORT_COLUMNS: 'vega_time=booked_at' },
      'it has no column booked_at, only vega_time, quantity',
    ],
  ])(
    'a CSV that is %s is refused with the setting that it needs',
    async (name, layout, settings, told) => {
      const host = await startHostileSource({
        cases: [layoutCase(name, '', layout, WHOLE)],
      });
      await using database = await openFreshDatabase();
      await using home = await openHome({
        SOURCE_URL: host.url,
        DATABASE_URL: database.url,
        ...settings,
      });
      const ended = await home.json(['export', '--party', host.partyOf(name)]);
      await host.close();
      expect(ended.code).toBe(2);
      expect(ended.stdout).toContain(told);
    },
  );
});
