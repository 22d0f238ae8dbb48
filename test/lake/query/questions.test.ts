import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { beforeAll, describe, expect, test } from 'vitest';
import { buildLake, type LakeDeps } from '../../../src/lake/build/build.ts';
import { type Lake, openLake } from '../../../src/lake/query/lake.ts';
import { publishSnapshot, readSnapshot } from '../../../src/lake/snapshot.ts';
import {
  completeIds,
  inquiry,
  type QuestionValues,
  READY_QUESTIONS,
  readyQuestion,
  refuseCutIds,
} from '../../../src/lake/query/questions.ts';
import { queryColumns } from '../../../src/lake/tables/tables.ts';
import { LAKE_TABLES } from '../../../src/lake/tables/columns.ts';
import { runQuery } from '../../../src/lake/query/query.ts';
import { openDuckDb } from '../../../src/lake/local/duckdb.ts';
import { verifyLake } from '../../../src/lake/verify/verify-lake.ts';
import { openFileStore } from '../../../src/storage/file-store.ts';
import { entry, type EntryRow, WarehouseDouble } from '../entries-double.ts';
import { lakeWorld } from '../lake-world.ts';

const signal = new AbortController().signal;
const ASSET_A = 'c0'.repeat(32);
const ASSET_B = 'c1'.repeat(32);
const PARTIES = ['aa'.repeat(32), 'bb'.repeat(32), 'network'];
const HUGE = '9'.repeat(45);
/** Few, so that many entries share one; the borders of months among them. */
const TIMES = [
  '2023-03-31T23:59:59.999999Z',
  '2023-04-01T00:00:00.000000Z',
  '2023-04-15T12:00:00.000000Z',
  '2023-04-30T23:59:59.999999Z',
  '2023-05-01T00:00:00.000000Z',
  '2023-05-01T00:00:00.000001Z',
  '2023-05-31T23:00:00.000000Z',
  '2023-06-01T00:00:00.000000Z',
  '2023-06-02T08:00:00.500000Z',
];

/** A generator of its own: the same entries in every run. */
function picker(seed: number): <Item>(items: readonly Item[]) => Item {
  let state = seed;
  return (items) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return items[Math.floor((state / 2 ** 32) * items.length)]!;
  };
}

function entries(count: number): readonly EntryRow[] {
  const pick = picker(7);
  return Array.from({ length: count }, () => {
    const from = pick(PARTIES);
    const to = pick(PARTIES);
    const balance = (): string =>
      pick(['', '0', '7', '-3', '10', `${10n ** 37n}`, HUGE, `-${HUGE}`]);
    return {
      party_id: from === 'network' ? to : from,
      vega_time: pick(TIMES),
      quantity: pick(['0', '1', '999', '9'.repeat(38), `${10n ** 38n}`, HUGE]),
      transfer_type: pick([
        'DEPOSIT',
        'MAKER_FEE_PAY',
        'LIQUIDITY_FEE_PAY',
        'MAKERXFEE_PAY',
        'FEE_PAYER',
      ]),
      asset_id: pick([ASSET_A, ASSET_B]),
      account_from_market_id: pick(['', 'dd'.repeat(32)]),
      account_from_party_id: from,
      account_from_account_type: pick(['GENERAL', 'MARGIN', '']),
      account_from_balance: balance(),
      account_to_market_id: pick(['', 'dd'.repeat(32)]),
      account_to_party_id: to,
      account_to_account_type: pick(['GENERAL', 'MARGIN']),
      account_to_balance: balance(),
    };
  });
}

const moved = (which: string): string =>
  `exact_sum(case when ${which} then quantity end, case when ${which} then quantity_text end)`;

/** The questions as they read over entries alone, without summaries. */
const PLAIN: Readonly<Record<string, (isAsked: string) => string>> = {
  'top-parties': (
    isAsked,
  ) => `with asked as (select * from ledger_entries where ${isAsked}),
    busiest as (select party_id, count(*) as n from asked group by party_id order by n desc, party_id limit 20)
    select party_id, asset_id, count(*) as entries,
      ${moved('account_from_party_id = party_id and account_to_party_id <> party_id')} as sent,
      ${moved('account_to_party_id = party_id and account_from_party_id <> party_id')} as received,
      ${moved('account_from_party_id = party_id and account_to_party_id = party_id')} as moved_within,
      max(vega_time) as latest, true as both_sides
    from asked join busiest using (party_id) group by party_id, asset_id, n order by n desc, party_id, asset_id`,
  'daily-flows': (
    isAsked,
  ) => `select cast(vega_time as date) as day, asset_id, transfer_type, count(*) as entries,
      exact_sum(quantity, quantity_text) as quantity
    from ledger_entries where is_counted and ${isAsked} group by 1, 2, 3 order by 1, 2, 3`,
  fees: (
    isAsked,
  ) => `select strftime(vega_time, '%Y-%m') as month, asset_id, transfer_type, count(*) as payments,
      count(distinct account_from_party_id) as payers, exact_sum(quantity, quantity_text) as paid
    from (select * replace (account_from_party_id as party_id) from ledger_entries)
    where is_counted and ends_with(transfer_type, '_FEE_PAY') and ${isAsked} group by 1, 2, 3 order by 1, 2, 3`,
  balances: (isAsked) => `with sides as (
      select account_from_party_id as party_id, asset_id, account_from_account_type as account_type, account_from_market_id as market_id,
        vega_time, coalesce(cast(account_from_balance as varchar), account_from_balance_text) as balance from ledger_entries
      union all
      select account_to_party_id, asset_id, account_to_account_type, account_to_market_id, vega_time,
        coalesce(cast(account_to_balance as varchar), account_to_balance_text) from ledger_entries),
    ranked as (select *, rank() over (partition by party_id, asset_id, account_type, market_id order by vega_time desc) as place
      from sides where party_id <> 'network' and balance is not null and ${isAsked})
    select party_id, asset_id, account_type, market_id, vega_time as as_of, string_agg(distinct balance, ' or ' order by balance) as balance, true as both_sides
    from ranked where place = 1 group by all order by 1, 2, 3, 4`,
};

const INSTANTS = [
  ...TIMES,
  '2023-04-10',
  '2023-05-20T10:00:00+02:00',
  '2022-01-01',
  '2024-01-01',
  undefined,
];

function asked(values: QuestionValues): string {
  const time = (text: string): string =>
    `timestamptz '${text}${text.length === 10 ? ' 00:00:00Z' : ''}'`;
  const conditions = [
    'true',
    ...(values.since === undefined
      ? []
      : [`vega_time >= ${time(values.since)}`]),
    ...(values.until === undefined
      ? []
      : [`vega_time < ${time(values.until)}`]),
    ...(values.party === undefined ? [] : [`party_id = '${values.party}'`]),
    ...(values.asset === undefined ? [] : [`asset_id = '${values.asset}'`]),
  ];
  return conditions.join(' and ');
}

type Answered = Readonly<Record<string, string | number | null>>;

function textOf(row: Answered, name: string): string {
  return String(row[name] ?? '');
}

async function answer(
  lake: Lake,
  sql: string,
  parameters = {},
): Promise<Record<string, unknown>> {
  let text = '';
  const output = new Writable({
    write: (piece: Buffer, _encoding, done) => {
      text += piece.toString();
      done();
    },
  });
  await runQuery(lake, sql, { format: 'json', parameters }, output, signal);
  return JSON.parse(text) as Record<string, unknown>;
}

describe('ready questions', () => {
  let deps: LakeDeps;

  beforeAll(async () => {
    const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-questions-'));
    const objects = openFileStore(join(folder, 'objects'));
    const scratchDir = join(folder, 'scratch');
    const repository = new WarehouseDouble();
    const rows = entries(600);
    deps = { repository, objects, scratchDir, retentionMs: 86_400_000 };
    // Night by night, so that a summary has parts; what counts changes meanwhile.
    for (const night of [0, 1, 2]) {
      const parts = [
        rows.slice(0, 300),
        rows.slice(300, 500),
        rows.slice(500),
      ].slice(0, night + 1);
      repository.segments = parts.map((ofNight, index) => ({
        segmentId: BigInt(index + 1),
        rows: ofNight,
      }));
      repository.covered = PARTIES.slice(0, night + 1).map((party) => [
        party,
        party === 'network' ? ASSET_A : '',
        '2023-04-01 00:00:00',
        night === 0 ? '2023-04-15 12:00:00' : '2023-05-31 23:00:00',
        true,
      ]);
      await buildLake(deps, signal);
    }
    return () => rm(folder, { recursive: true, force: true });
  });

  test.each(
    READY_QUESTIONS.filter(({ name }) => name in PLAIN).map((question) => [
      question.name,
      question,
    ]),
  )(
    'the ready question %s gives the same answer from summaries as from entries',
    async (name, question) => {
      const pick = picker(11);
      await using everything = await openLake(deps, signal);
      for (let round = 0; round < 12; round += 1) {
        const since = pick(INSTANTS);
        const until = pick(INSTANTS);
        // An empty range is refused.
        const isEmpty = Date.parse(since ?? '') >= Date.parse(until ?? '');
        const all = {
          since,
          until: isEmpty ? undefined : until,
          // It stands for both, and test/time/typed-range.test.ts has what it means.
          month: undefined,
          at: undefined,
          party: pick([undefined, ...PARTIES]),
          asset: pick([undefined, ASSET_A]),
        };
        const taken = question.parameters.flatMap((option) => {
          const value = all[option];
          return value === undefined ? [] : [[option, value] as const];
        });
        const values: QuestionValues =
          round === 0 ? {} : Object.fromEntries(taken);
        const { sql, range, parameters } = inquiry(question, values);
        await using lake = await openLake({ ...deps, sql, range }, signal);
        const fromEntries = await answer(
          everything,
          PLAIN[name]?.(asked(values)) ?? '',
        );
        expect({ values, ...(await answer(lake, sql, parameters)) }).toEqual({
          values,
          ...fromEntries,
        });
      }
    },
  );

  describe('against an independent sum', () => {
    const rows = entries(600);
    /** Each row of the double is one entry: every party is covered to the same time. */
    const askFor = async (
      name: string,
      values: QuestionValues = {},
    ): Promise<readonly Answered[]> => {
      const { sql, range, parameters } = inquiry(readyQuestion(name)!, values);
      await using lake = await openLake({ ...deps, sql, range }, signal);
      const found = await answer(lake, sql, parameters);
      return found['rows'] as Answered[];
    };
    /** The entries that count, read back with a plain statement. */
    const counted = async (
      table = 'entries',
    ): Promise<readonly (EntryRow & Record<string, unknown>)[]> => {
      await using lake = await openLake(deps, signal);
      const found = await answer(
        lake,
        `select * exclude (quantity), coalesce(cast(quantity as varchar), quantity_text) as quantity
           from ${table}`,
      );
      const known = found['rows'] as (EntryRow & Record<string, unknown>)[];
      expect(known.length).toBeLessThanOrEqual(rows.length);
      return known;
    };

    test('who-pays adds up each pair', async () => {
      const sums = new Map<string, { entries: number; quantity: bigint }>();
      for (const row of await counted()) {
        const { account_from_party_id: from, account_to_party_id: to } = row;
        if (from === to) continue;
        const key = `${from} ${to} ${row.asset_id}`;
        const { entries: n, quantity } = sums.get(key) ?? {
          entries: 0,
          quantity: 0n,
        };
        sums.set(key, {
          entries: n + 1,
          quantity: quantity + BigInt(row.quantity),
        });
      }
      const told = (await askFor('who-pays')).map((row) => [
        `${textOf(row, 'payer')} ${textOf(row, 'payee')} ${textOf(row, 'asset_id')}`,
        { entries: row['entries'], quantity: BigInt(textOf(row, 'quantity')) },
      ]);
      expect(told).toHaveLength(sums.size);
      expect(Object.fromEntries(told)).toEqual(Object.fromEntries(sums));
      const [party = ''] = PARTIES;
      for (const row of await askFor('who-pays', { party }))
        expect([row['payer'], row['payee']]).toContain(party);
    });

    test('fees-by-market adds up to the fees by month', async () => {
      const total = (found: readonly Answered[]): Record<string, string> => {
        const sums: Record<string, bigint> = {};
        for (const row of found) {
          const key = `${textOf(row, 'month')} ${textOf(row, 'asset_id')} ${textOf(row, 'transfer_type')}`;
          sums[key] = (sums[key] ?? 0n) + BigInt(textOf(row, 'paid'));
        }
        return Object.fromEntries(
          Object.entries(sums).map(([key, sum]) => [key, `${sum}`]),
        );
      };
      const month = '2023-04';
      expect(total(await askFor('fees-by-market'))).toEqual(
        total(await askFor('fees')),
      );
      expect(total(await askFor('fees-by-market', { month }))).toEqual(
        total(await askFor('fees', { month })),
      );
    });

    test('a statement has every change of the accounts of its party', async () => {
      const [party = ''] = PARTIES;
      let change = 0n;
      let lines = 0;
      for (const row of await counted()) {
        if (row.account_from_party_id === party) change -= BigInt(row.quantity);
        if (row.account_to_party_id === party) change += BigInt(row.quantity);
        lines += Number(row.account_from_party_id === party);
        lines += Number(row.account_to_party_id === party);
      }
      const told = await askFor('statement', { party });
      expect(told).toHaveLength(lines);
      expect(
        told.reduce((sum, row) => sum + BigInt(textOf(row, 'change')), 0n),
      ).toBe(change);
      const times = told.map((row) => textOf(row, 'vega_time'));
      expect(times).toEqual(times.toSorted());
      await expect(askFor('statement')).rejects.toThrow(
        /^query statement: it needs --party; give --party \S+, for example$/,
      );
    });

    test.each(['yesterday', '2026-03-01', '2026-03'])(
      'around refuses %s, which is no instant, and says what is missing',
      async (at) => {
        await expect(askFor('around', { at })).rejects.toThrow(
          /^--at: "[^"]+" lacks the time of day; give an instant, such as '\d{4}-\d\d-\d\d 14:30' \(UTC\)$/,
        );
      },
    );

    test('around shows ten minutes before and after, both ends included', async () => {
      const at = '2023-04-30T23:59:59.999999Z';
      const near = (await counted()).filter(({ vega_time: time }) =>
        [at, '2023-05-01T00:00:00.000000Z', '2023-05-01T00:00:00.000001Z'].some(
          (one) => time.replace(' ', 'T').startsWith(one.slice(0, 19)),
        ),
      );
      const told = await askFor('around', { at });
      expect(told).toHaveLength(near.length);
      expect(told.some((row) => Number(row['seconds_after']) > 0)).toBe(true);
    });

    test('holders carries a balance on until the next one', async () => {
      const balances = new Map<string, { time: string; all: bigint[] }[]>();
      // The double's rows differ from each other, those that do not count too.
      for (const row of await counted('ledger_entries'))
        for (const side of ['from', 'to'] as const) {
          const owner = row[`account_${side}_party_id`];
          if (owner === 'network') continue;
          const text =
            row[`account_${side}_balance`] ??
            row[`account_${side}_balance_text`];
          if (typeof text !== 'string') continue;
          const key = [
            owner,
            row.asset_id,
            row[`account_${side}_account_type`],
            row[`account_${side}_market_id`],
          ].join('|');
          const time = row.vega_time;
          const seen = balances.get(key) ?? [];
          const same = seen.find((one) => one.time === time);
          if (same) same.all.push(BigInt(text));
          else seen.push({ time, all: [BigInt(text)] });
          balances.set(key, seen);
        }
      const expected = ['2023-03', '2023-04', '2023-05', '2023-06'].map(
        (month) => {
          const closing = [...balances].flatMap(([key, seen]) => {
            const last = seen
              .filter(({ time }) => time.slice(0, 7) <= month)
              .toSorted((a, b) => (a.time < b.time ? 1 : -1))[0];
            if (last === undefined || key.split('|')[1] !== ASSET_A) return [];
            const held = last.all.reduce((a, b) => (a > b ? a : b));
            return [{ party: key.split('|')[0], held }];
          });
          const holding = closing.filter(({ held }) => held > 0n);
          return {
            month,
            holders: new Set(holding.map(({ party }) => party)).size,
            accounts: holding.length,
            held: `${holding.reduce((sum, { held }) => sum + held, 0n)}`,
          };
        },
      );
      const told = await askFor('holders', { asset: ASSET_A });
      expect(
        told.map(({ month, holders, accounts, held }) => ({
          month,
          holders,
          accounts,
          held,
        })),
      ).toEqual(expected);
    });

    test('dormant names who has no entry since', async () => {
      const since = '2023-06-02T08:00:00.500000Z';
      await using lake = await openLake(deps, signal);
      const found = await answer(
        lake,
        'select party_id, max(vega_time) as last_at from ledger_entries group by 1',
      );
      const idle = (found['rows'] as { party_id: string; last_at: string }[])
        .filter(
          ({ party_id: id, last_at: last }) =>
            id !== 'network' && Date.parse(last) < Date.parse(since),
        )
        .map(({ party_id: id }) => id);
      const told = (await askFor('dormant', { since })).filter(
        ({ last_at: last }) => last !== null,
      );
      expect(told.map((row) => textOf(row, 'party_id')).toSorted()).toEqual(
        idle.toSorted(),
      );
      expect(
        (await askFor('dormant', { since: '2030-01-01' })).length,
      ).toBeGreaterThanOrEqual(PARTIES.length - 1);
      expect(Array.isArray(await askFor('dormant'))).toBe(true);
    });
  });

  test('a deep check compares the summaries of ready questions with their entries', async () => {
    expect(await verifyLake(deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 0,
    });
    const before = (await readSnapshot({ ...deps, signal }))!;
    const { version } = before.tables.monthly_fees!;
    const moment = { ...before, moment: before.moment + 1 };
    // The version before is based on other entries.
    moment.tables = {
      ...moment.tables,
      monthly_fees: { ...before.tables.monthly_fees!, version: version - 1 },
    };
    await publishSnapshot({ ...deps, signal }, moment);
    const { problems } = await verifyLake(deps, { deep: true }, signal);
    expect(problems.map(({ code, subject }) => `${code} ${subject}`)).toContain(
      'LAKE_TABLE_OLDER lake/monthly_fees',
    );
    expect((await buildLake(deps, signal)).version).toBe(before.moment + 2);
    expect(await verifyLake(deps, { deep: true }, signal)).toMatchObject({
      problems: [],
    });
  });

  test('ready questions leave out what a one-sided export cannot show', async () => {
    const world = await lakeWorld();
    const [sent = '', received = ''] = PARTIES;
    world.warehouse.segments = [
      {
        segmentId: 1n,
        rows: [
          entry({
            party_id: sent,
            account_from_party_id: sent,
            account_to_party_id: received,
          }),
          entry({
            party_id: received,
            account_from_party_id: sent,
            account_to_party_id: received,
          }),
        ],
      },
    ];
    const month = ['2023-05-01 00:00:00', '2023-06-01 00:00:00'] as const;
    world.warehouse.covered = [
      [sent, '', ...month, false],
      [received, '', ...month, true],
    ];
    await buildLake(world.deps, signal);
    await using lake = await openLake(world.deps, signal);
    const { sql, parameters } = inquiry(READY_QUESTIONS[0]!);
    expect((await answer(lake, sql, parameters))['rows']).toMatchObject([
      { party_id: sent, sent: '1', received: null, both_sides: false },
      { party_id: received, sent: '0', received: '1', both_sides: true },
    ]);
  });

  test('a statement that names the view entries reads each entry once; a column of that name fetches none', async () => {
    const world = await lakeWorld();
    const [sent = '', received = ''] = PARTIES;
    const sides = {
      account_from_party_id: sent,
      account_to_party_id: received,
    };
    const rows = [sent, received].map((party_id) =>
      entry({ party_id, ...sides }),
    );
    world.warehouse.segments = [{ segmentId: 1n, rows }];
    world.warehouse.covered = [sent, received].map(
      (id) =>
        [id, '', '2023-05-01 00:00:00', '2023-06-01 00:00:00', true] as const,
    );
    await buildLake(world.deps, signal);
    const count = async (sql: string): Promise<unknown> => {
      await using lake = await openLake({ ...world.deps, sql }, signal);
      return (await answer(lake, sql))['rows'];
    };
    for (const named of [
      'entries',
      '"ENTRIES" e',
      'main.entries',
      '(from entries)',
      "query('from entries')",
    ])
      expect(await count(`select count(*) as n from ${named}`)).toEqual([
        { n: 1 },
      ]);
    expect(await count('select count(*) as n from ledger_entries')).toEqual([
      { n: 2 },
    ]);
    const summed = 'select sum(entries) as n from daily_flows';
    expect(await count(summed)).toEqual([{ n: '1' }]);
    await using lake = await openLake({ ...world.deps, sql: summed }, signal);
    expect(
      await answer(lake, 'select count(*) as n from ledger_entries'),
    ).toMatchObject({
      rows: [{ n: 0 }],
    });
  });

  test('ready questions complete the beginning of an id and refuse one that fits none or several', async () => {
    const world = await lakeWorld();
    const [one = '', other = ''] = PARTIES;
    const rows = [one, other].map((id) =>
      entry({ party_id: id, account_from_party_id: id }),
    );
    world.warehouse.segments = [{ segmentId: 1n, rows }];
    world.warehouse.covered = [one, other].map(
      (id) =>
        [id, '', '2023-05-01 00:00:00', '2023-06-01 00:00:00', true] as const,
    );
    await buildLake(world.deps, signal);
    await using lake = await openLake(world.deps, signal);
    const fees = readyQuestion('fees')!;
    const complete = async (
      values: QuestionValues,
    ): ReturnType<typeof completeIds> =>
      completeIds(inquiry(fees, values), lake.connection);
    expect(await complete({ party: one })).toEqual({ party: one, asset: null });
    expect(await complete({ party: `${one.slice(0, 8)}…` })).toMatchObject({
      party: one,
    });
    expect(
      await complete({ party: `${one.slice(0, 8)}…${one.slice(-4)}` }),
    ).toMatchObject({ party: one });
    await expect(complete({ party: `${one.slice(0, 8)}…zz` })).rejects.toThrow(
      'there is no party',
    );
    await expect(complete({ party: 'nobody' })).rejects.toThrow(
      '--party: there is no party "nobody"; give the id of a party in the lake',
    );
    await expect(complete({ party: '' })).rejects.toThrow(
      `more than one party begins with "": ${[one, other].toSorted().join(', ')}`,
    );
    await expect(complete({ asset: 'none' })).rejects.toThrow(
      'there is no asset "none"',
    );
  });

  test('statements may use the warehouse names, with or without their schema', async () => {
    await using lake = await openLake(deps, signal);
    const ask = async (sql: string): Promise<unknown> =>
      (await answer(lake, sql, {}))['rows'];
    for (const name of ['ledger_entries', 'entries', 'parties']) {
      const counted = (from: string): string =>
        `select count(*) as n from ${from}`;
      expect(await ask(counted(`mirror.${name}`))).toEqual(
        await ask(counted(name)),
      );
    }
    await expect(ask('select * from mirror.runs')).rejects.toThrow(
      'there is no table runs',
    );
  });

  test.each(LAKE_TABLES)(
    'the columns of %s are those of the data dictionary',
    async (table) => {
      await using lake = await openLake(deps, signal);
      const reader = await lake.connection.runAndReadAll(`describe ${table}`);
      const listed = queryColumns(table).map(
        ({ name, type }) => `${name} ${type}`,
      );
      const seen = reader
        .getRows()
        .map(([name, type]) => `${String(name)} ${String(type)}`);
      expect(listed.toSorted()).toEqual(seen.toSorted());
    },
  );

  test('a shortened id in SQL is refused', () => {
    expect(() =>
      refuseCutIds(`select 1 from parties where party_id = '3498d7ac…0033'`),
    ).toThrow(`'3498d7ac…0033' is the beginning of an id`);
    expect(() => refuseCutIds(`select 'more …' as text`)).not.toThrow();
  });

  test('ready questions refuse a text that is not a time', () => {
    const [question] = READY_QUESTIONS;
    expect(() => inquiry(question!, { since: '20.11.2026' })).toThrow(
      '--since: "20.11.2026" is not a time that can be read',
    );
  });

  test('ready questions refuse a range that ends before it begins', () => {
    const [question] = READY_QUESTIONS;
    expect(() =>
      inquiry(question!, { since: '2026-02-01', until: '2026-01-01' }),
    ).toThrow(
      '--since, --until: 2026-02-01T00:00:00.000000Z is not before 2026-01-01T00:00:00.000000Z; give a range that is not empty',
    );
  });
});

describe('the cadence of checkpoints', () => {
  test.each([
    [
      'ends the widest gap at the first block of several',
      [5, 15, 17, 27, 28],
      15,
    ],
    ['has no widest gap where all are alike', [5, 10, 15, 20], null],
    ['has no widest gap with one checkpoint', [5], null],
  ])('%s', async (_name, blocks, endsAt) => {
    const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror cadence '));
    await using engine = await openDuckDb(folder);
    const rows = blocks.map((block) => `(1, ${block})`).join(', ');
    await engine.connection.run(
      `create table checkpoints as from (values ${rows}) as t(epoch, at_block)`,
    );
    const { sql } = inquiry(readyQuestion('cadence')!);
    for (let round = 0; round < 20; round += 1) {
      const [row] = (
        await engine.connection.runAndReadAll(sql)
      ).getRowObjects();
      expect(row?.['widest_gap_ends_at']).toBe(endsAt);
    }
    await rm(folder, { recursive: true });
  });
});
