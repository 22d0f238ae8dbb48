/**
 * From the sandbox network to warehouse and lake: its truth says what every number must
 * be.
 */
import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { afterAll, expect, test } from 'vitest';
import { exportParty } from '../../src/exports/export-party.ts';
import { buildLake, type LakeDeps } from '../../src/lake/build/build.ts';
import { type Lake, openLake } from '../../src/lake/query/lake.ts';
import {
  type Inquiry,
  inquiry,
  type QuestionValues,
  readyQuestion,
} from '../../src/lake/query/questions.ts';
import { runQuery } from '../../src/lake/query/query.ts';
import { rebuildIfEmpty } from '../../src/warehouse/store/rebuild.ts';
import { verifyLake } from '../../src/lake/verify/verify-lake.ts';
import { loadAll } from '../../src/warehouse/load-all.ts';
import type { LakeCheck } from '../../src/warehouse/ports.ts';
import { verify, type VerifyReport } from '../../src/warehouse/verify.ts';
import { RELEASE_NAMES } from '../../src/sandbox/options.ts';
import { type Sandbox, startSandbox } from '../support/sandbox.ts';
import { openWarehouse, type Warehouse } from '../../src/postgres/database.ts';
import { LakeStore } from '../../src/lake/store/lake-store.ts';
import { LoadStore } from '../../src/warehouse/store/load-store.ts';
import { VerifyStore } from '../../src/warehouse/store/verify-store.ts';
import { signal, World } from '../exports/export-world.ts';
import { clockAt } from '../exports/ledger-double.ts';
import { testSource } from '../source/test-source.ts';
import { freshDatabase, openFreshDatabase } from '../support/database.ts';
import { emptyLedgers } from '../support/mirror-arrange.ts';

const database = await freshDatabase({ isMigrated: true });
const warehouse = openWarehouse({
  url: database.url,
  onIdleError: () => undefined,
});
afterAll(() => warehouse[Symbol.asyncDispose]());

const SUMS = `select %PARTY% as party_id, asset_id, transfer_type as type, cast(%DAY% as varchar) as day,
    cast(count(*) as varchar) as entries, cast(sum(quantity) as varchar) as quantity
  from %TABLE% group by 1, 2, 3, 4`;

type Sums = readonly Record<string, string>[];

function sorted(rows: Sums): readonly string[] {
  return rows
    .map(({ party_id, asset_id, type, day, entries, quantity }) =>
      [party_id, asset_id, type, day, entries, quantity].join(' '),
    )
    .toSorted();
}

function truthOf(sandbox: Sandbox): readonly string[] {
  const rows = [...sandbox.truth.parties()].flatMap(({ id }) =>
    sandbox.truth.party(id).sums.map((sum) => ({
      party_id: id,
      asset_id: sum.assetId,
      type: sum.type.replace('TRANSFER_TYPE_', ''),
      day: sum.day,
      entries: `${sum.entries}`,
      quantity: `${sum.quantity}`,
    })),
  );
  return sorted(rows);
}

/**
 * By default each party's export as it is; `party` and `table` say what else to add up.
 */
async function inWarehouse(
  { pool } = database,
  party = 'party_id',
  table = 'mirror.ledger_entries',
): Promise<readonly string[]> {
  const sql = SUMS.replace('%PARTY%', party)
    .replace('%DAY%', `(vega_time at time zone 'UTC')::date`)
    .replace('%TABLE%', table);
  return sorted((await pool.query<Record<string, string>>(sql)).rows);
}

async function inLake(
  deps: LakeDeps,
  party = 'party_id',
  rows = '',
): Promise<readonly string[]> {
  const sql = SUMS.replace('%PARTY%', party)
    .replace('%DAY%', 'cast(vega_time as date)')
    .replace('%TABLE%', `ledger_entries ${rows}`);
  return sorted((await lakeRows(deps, sql)) as Sums);
}

async function lakeRows(
  deps: LakeDeps,
  sql: string,
): Promise<readonly unknown[]> {
  await using lake = await openLake({ ...deps, sql }, signal);
  return await rowsOf(lake, sql);
}

async function rowsOf(
  lake: Lake,
  sql: string,
  parameters: Inquiry['parameters'] = { party: null, asset: null },
): Promise<readonly unknown[]> {
  const pieces: string[] = [];
  const output = new Writable({
    write(piece: Buffer, _encoding, done) {
      pieces.push(piece.toString());
      done();
    },
  });
  await runQuery(lake, sql, { format: 'json', parameters }, output, signal);
  return (JSON.parse(pieces.join('')) as { rows: unknown[] }).rows;
}

/**
 * Each summary of the lake, whose files each have their part of it, and the view of the
 * warehouse that says the same.
 */
const SUMMARIES_AND_VIEWS = [
  [
    `select cast(day as varchar) as day, asset_id, transfer_type, cast(sum(entries) as varchar) as entries,
       cast(exact_sum(quantity, quantity_text) as varchar) as quantity from daily_flows group by 1, 2, 3`,
    `select day::text, asset_id, transfer_type, entries, quantity from mirror.flows_daily`,
  ],
  [
    `select month, party_id, asset_id, transfer_type, cast(sum(payments) as varchar) as payments,
       cast(exact_sum(paid, paid_text) as varchar) as paid from monthly_fees group by 1, 2, 3, 4`,
    `select to_char(day, 'YYYY-MM') as month, party_id, asset_id, transfer_type, sum(payments)::text as payments,
       sum(paid) as paid from mirror.fees_daily group by 1, 2, 3, 4`,
  ],
  [
    `select distinct month, party_id, asset_id, account_type, market_id, cast(epoch_us(as_of) as varchar) as as_of,
       coalesce(cast(balance as varchar), balance_text) as balance from monthly_balances
     qualify rank() over (partition by month, party_id, asset_id, account_type, market_id order by monthly_balances.as_of desc) = 1`,
    `select distinct month, party_id, asset_id, account_type, market_id,
       (extract(epoch from vega_time) * 1000000)::bigint::text as as_of, balance from (
         select *, to_char(vega_time at time zone 'UTC', 'YYYY-MM') as month, rank() over (
           partition by to_char(vega_time at time zone 'UTC', 'YYYY-MM'), party_id, asset_id, account_type, market_id
           order by vega_time desc) as place
         from mirror.balances where balance is not null) as ranked where place = 1`,
  ],
] as const;

/**
 * Each ready question that has a view, both in one form: the question's columns as text,
 * and the statement that gives the same from the warehouse.
 */
const QUESTIONS_AND_VIEWS = [
  [
    'holders',
    `month, asset_id, cast(holders as varchar) as holders, cast(accounts as varchar) as accounts,
       cast(held as varchar) as held, cast(unresolved as varchar) as unresolved`,
    `select to_char(month, 'YYYY-MM') as month, asset_id, holders, accounts, held, unresolved
       from mirror.holders_monthly`,
  ],
  [
    'who-pays',
    `payer, payee, asset_id, cast(entries as varchar) as entries, cast(quantity as varchar) as quantity,
       cast(epoch_us(first_at) as varchar) as first_at, cast(epoch_us(last_at) as varchar) as last_at`,
    `select payer, payee, asset_id, sum(entries)::text as entries, sum(quantity) as quantity,
       (extract(epoch from min(first_at)) * 1000000)::bigint::text as first_at,
       (extract(epoch from max(last_at)) * 1000000)::bigint::text as last_at
     from mirror.payments_monthly group by 1, 2, 3`,
  ],
  [
    'fees-by-market',
    `month, market_id, asset_id, transfer_type, cast(payments as varchar) as payments,
       cast(payers as varchar) as payers, cast(paid as varchar) as paid`,
    `select to_char(month, 'YYYY-MM') as month, market_id, asset_id, transfer_type, payments, payers, paid
       from mirror.market_fees_monthly`,
  ],
  [
    'dormant',
    `party_id, cast(entries as varchar) as entries, cast(epoch_us(last_at) as varchar) as last_at`,
    `select party_id, entries, (extract(epoch from last_at) * 1000000)::bigint::text as last_at
       from mirror.last_activity`,
  ],
  [
    'statement',
    `cast(epoch_us(vega_time) as varchar) as vega_time, asset_id, account_type, market_id, transfer_type,
       counterparty_id, cast(change as varchar) as change, balance`,
    `select (extract(epoch from vega_time) * 1000000)::bigint::text as vega_time, asset_id, account_type, market_id,
       transfer_type, counterparty_id, change, balance
     from mirror.statement_lines where party_id = %PARTY%`,
  ],
  [
    'around',
    `cast(epoch_us(vega_time) as varchar) as vega_time, transfer_type, asset_id, payer, payee,
       cast(quantity as varchar) as quantity`,
    `select (extract(epoch from vega_time) * 1000000)::bigint::text as vega_time, transfer_type, asset_id,
       account_from_party_id as payer, account_to_party_id as payee, quantity
     from mirror.entries where vega_time between timestamptz %AT% - interval '10 minutes'
       and timestamptz %AT% + interval '10 minutes'`,
  ],
] as const;

/** Each ready question gives in the lake what its view gives in the warehouse. */
async function expectQuestions(deps: LakeDeps): Promise<void> {
  const busiest = await database.pool.query<{ party: string; at: string }>(
    `select account_from_party_id as party,
       to_char(max(vega_time) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at
     from mirror.entries where account_from_party_id <> 'network' group by 1 order by count(*) desc, 1 limit 1`,
  );
  const { party = '', at = '' } = busiest.rows[0] ?? {};
  const values: Readonly<Record<string, QuestionValues>> = {
    dormant: { since: '2100-01-01' },
    statement: { party },
    around: { at },
  };
  const texts = (rows: readonly unknown[]): string[] =>
    rows.map((row) => JSON.stringify(row)).toSorted();
  for (const [name, columns, view] of QUESTIONS_AND_VIEWS) {
    const { sql, range, parameters } = inquiry(
      readyQuestion(name)!,
      values[name],
    );
    await using lake = await openLake({ ...deps, sql, range }, signal);
    const asked = `select ${columns} from (${sql})`;
    const inViews = await database.pool.query(
      view.replaceAll('%PARTY%', `'${party}'`).replaceAll('%AT%', `'${at}'`),
    );
    expect([name, inViews.rows.length > 0]).toEqual([name, true]);
    const inLakeRows = texts(await rowsOf(lake, asked, parameters));
    expect([name, ...inLakeRows]).toEqual([name, ...texts(inViews.rows)]);
  }
}

async function expectSummaries(deps: LakeDeps): Promise<void> {
  await using lake = await openLake(deps, signal);
  for (const [ofLake, ofWarehouse] of SUMMARIES_AND_VIEWS) {
    const texts = (rows: readonly unknown[]): string[] =>
      rows.map((row) => JSON.stringify(row)).toSorted();
    const views = texts((await database.pool.query(ofWarehouse)).rows);
    expect(views.length).toBeGreaterThan(0);
    expect(texts(await rowsOf(lake, ofLake))).toEqual(views);
  }
}

function lakeDeps(
  of: Warehouse,
  objects: World['objects'],
  folder: string,
): LakeDeps {
  const scratchDir = join(folder, 'scratch');
  return {
    repository: new LakeStore(of.pool),
    objects,
    scratchDir,
    retentionMs: 7 * 86_400_000,
  };
}

async function verifyDeep(
  of: Warehouse,
  objects: World['objects'],
  lake: LakeDeps,
): Promise<VerifyReport> {
  const check: LakeCheck = (options, either) =>
    verifyLake(lake, options, either);
  return verify(
    { repository: new VerifyStore(of), objects, lake: check },
    signal,
    {
      deep: true,
    },
  );
}

/** Every row and where it lies: what a load that has nothing to do must leave alone. */
async function stateOf(): Promise<unknown> {
  const rows = await database.pool.query(
    `select tableoid::regclass, ctid, xmin, segment_id from mirror.ledger_entries order by 1, 2`,
  );
  const segments = await database.pool.query(
    'select *, xmin from mirror.segments order by segment_id',
  );
  return { rows: rows.rows, segments: segments.rows };
}

/** From nothing but the objects: an empty database, and no lake. */
async function expectFromObjectsAlone(
  world: World,
  truth: readonly string[],
): Promise<void> {
  await using empty = await openFreshDatabase({ isMigrated: true });
  const other = openWarehouse({ url: empty.url, onIdleError: () => undefined });
  try {
    const { objects, folder } = world;
    await rm(join(folder, 'objects', 'lake'), { recursive: true, force: true });
    const lake = lakeDeps(other, objects, folder);
    expect(
      await rebuildIfEmpty({ db: other.db, objects }, signal),
    ).toMatchObject({
      problemCount: 0,
    });
    expect(
      await loadAll({ repository: new LoadStore(other), objects }, signal),
    ).toMatchObject({
      verdict: 'complete',
    });
    await buildLake(lake, signal);
    expect(await inWarehouse(empty)).toEqual(truth);
    expect(await inLake(lake)).toEqual(truth);
    expect(await verifyDeep(other, objects, lake)).toMatchObject({
      verdict: 'complete',
      problems: [],
    });
  } finally {
    await other[Symbol.asyncDispose]();
  }
}

/**
 * What counts once: sent by a party, each as in the truth of a release that knows nothing
 * else; by the network, each.
 */
async function expectCountedOnce(
  lake: LakeDeps,
  sender: Sandbox,
  isBothSided: boolean,
): Promise<void> {
  const sent = truthOf(sender);
  const party = 'account_from_party_id';
  const ofParty = `account_from_party_id <> 'network'`;
  expect(
    await inWarehouse(database, party, `mirror.entries where ${ofParty}`),
  ).toEqual(sent);
  expect(await inLake(lake, party, `where is_counted and ${ofParty}`)).toEqual(
    sent,
  );
  const received = await inWarehouse(
    database,
    'party_id',
    `mirror.ledger_entries where account_from_party_id = 'network'`,
  );
  expect(received.length > 0).toBe(isBothSided);
  const ofNetwork = `mirror.entries where account_from_party_id = 'network'`;
  expect(await inWarehouse(database, 'account_to_party_id', ofNetwork)).toEqual(
    received,
  );
  const { rows } = await database.pool.query(
    'select distinct sides from mirror.entries',
  );
  expect(rows).toEqual([{ sides: isBothSided ? 'both' : 'from' }]);
}

test.each(RELEASE_NAMES)(
  'table, views, lake and rebuilt database agree with the source of release %s after every nightly run',
  async (release) => {
    await using world = await World.open(database);
    await emptyLedgers(database.pool);
    const network = {
      parties: 8,
      rateLimit: 'none',
      whaleEntries: 500,
    } as const;
    const sandbox = await startSandbox({ ...network, release });
    const sender = await startSandbox(network);
    try {
      const { ledger } = testSource(new URL(sandbox.url));
      const objects = world.objects;
      const lake = lakeDeps(warehouse, objects, world.folder);
      for (const passedMs of [0, 3_600_000, 86_400_000]) {
        sandbox.advance(passedMs);
        sender.advance(passedMs);
        const clock = clockAt(sandbox.truth.head().time);
        for (const { id } of sandbox.truth.parties()) {
          const request = { partyId: id, runId: randomUUID(), clock };
          await exportParty(
            request,
            world.deps({ source: ledger, segmentBytesMax: 100_000 }),
            signal,
          );
        }
        expect(
          await loadAll(
            { repository: new LoadStore(warehouse), objects },
            signal,
          ),
        ).toMatchObject({
          verdict: 'complete',
        });
        await buildLake(lake, signal);

        const truth = truthOf(sandbox);
        expect(truth.length).toBeGreaterThan(10);
        expect(await inWarehouse()).toEqual(truth);
        expect(await inLake(lake)).toEqual(truth);
        await expectCountedOnce(lake, sender, release !== '0.71.4');
        expect(await verifyDeep(warehouse, objects, lake)).toMatchObject({
          verdict: 'complete',
          problems: [],
        });
      }
      await expectSummaries(lake);
      await expectQuestions(lake);
      const before = await stateOf();
      const again = await loadAll(
        { repository: new LoadStore(warehouse), objects },
        signal,
      );
      expect(again).toMatchObject({ segments: 0, rows: 0n, removedRows: 0n });
      expect((await buildLake(lake, signal)).changed).toEqual([]);
      expect(await stateOf()).toEqual(before);
      await expectFromObjectsAlone(world, truthOf(sandbox));
    } finally {
      await sandbox.stop();
      await sender.stop();
    }
  },
);
