import { readFile } from 'node:fs/promises';
import { mkdtemp, rm } from 'node:fs/promises';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadAll } from '../../src/warehouse/load-all.ts';
import { openFileStore } from '../../src/storage/file-store.ts';
import { openWarehouse } from '../../src/postgres/database.ts';
import { LoadStore } from '../../src/warehouse/store/load-store.ts';
import { migrate } from '../../src/postgres/migrate.ts';
import { freshDatabase } from '../support/database.ts';
import { HEADER_13 } from '../ledger/csv.ts';
import { PARTY_A, PARTY_B, publish, row12, row13 } from './published.ts';
import { addCheckpoints } from '../support/mirror-arrange.ts';

const database = await freshDatabase();
const warehouse = openWarehouse({
  url: database.url,
  onIdleError: () => undefined,
});
await migrate(warehouse.db);
afterAll(() => warehouse[Symbol.asyncDispose]());
const folder = await mkdtemp('/tmp/ledger-mirror-views-');
afterAll(() => rm(folder, { recursive: true, force: true }));

const PARTY_C = 'cc'.repeat(32);
const RANGE = { from: '2023-05-01T00:00:00Z', to: '2023-06-01T00:00:00Z' };

async function ask(sql: string): Promise<readonly Record<string, unknown>[]> {
  return (await database.pool.query<Record<string, unknown>>(sql)).rows;
}

beforeAll(async () => {
  const objects = openFileStore(folder);
  const pool = database.pool;
  const shared = {
    time: '2023-05-02 10:00:00.5+00',
    from: PARTY_A,
    to: PARTY_B,
    type: 'MAKER_FEE_PAY',
    quantity: '7',
  };
  const outside = {
    time: '2023-05-03 10:00:00+00',
    from: PARTY_C,
    to: PARTY_B,
    type: 'TRANSFER',
    quantity: '5',
  };
  const late = {
    time: '2023-06-02 10:00:00+00',
    from: PARTY_A,
    to: PARTY_B,
    type: 'TRANSFER',
    quantity: '3',
  };
  // A's ledger ends in May; B has June as well. C is known from B's export alone.
  await publish(pool, objects, {
    party: PARTY_A,
    ...RANGE,
    header: HEADER_13,
    rows: [shared, shared].map((e) => row13(e, PARTY_A)),
  });
  await publish(pool, objects, {
    party: PARTY_B,
    ...RANGE,
    to: '2023-07-01T00:00:00Z',
    header: HEADER_13,
    rows: [shared, outside, late, shared].map((e) => row13(e, PARTY_B)),
  });
  await publish(pool, objects, {
    party: PARTY_C,
    ...RANGE,
    from: '2023-04-01T00:00:00Z',
    to: '2023-05-01T00:00:00Z',
    rows: [
      row12({ time: '2023-04-02 10:00:00+00', from: PARTY_C, to: 'network' }),
    ],
  });
  await addCheckpoints(pool, [
    { epoch: 1, at_block: 10, hash: 'a', block_hash: 'a', copies: 2 },
    { epoch: 1, at_block: 10, hash: 'b', block_hash: 'b', copies: 1 },
    { epoch: 1, at_block: 25, hash: 'c', block_hash: 'c', copies: 1 },
  ]);
  await loadAll(
    { repository: new LoadStore(warehouse), objects },
    new AbortController().signal,
  );
});

describe('the published views', () => {
  test('count an entry that two exports hold once, and repeated ones as often as they happened', async () => {
    expect(
      await ask(
        'select party_id, quantity, sides from mirror.entries order by vega_time, quantity',
      ),
    ).toEqual([
      { party_id: PARTY_C, quantity: '1000000', sides: 'from' },
      { party_id: PARTY_A, quantity: '7', sides: 'both' },
      { party_id: PARTY_A, quantity: '7', sides: 'both' },
      { party_id: PARTY_B, quantity: '5', sides: 'both' },
      { party_id: PARTY_B, quantity: '3', sides: 'both' },
    ]);
    expect(
      await ask(
        `select day::text, transfer_type, entries, quantity, both_sides from mirror.flows_daily order by day`,
      ),
    ).toEqual([
      {
        day: '2023-04-02',
        transfer_type: 'MARGIN_HIGH',
        entries: '1',
        quantity: '1000000',
        both_sides: false,
      },
      {
        day: '2023-05-02',
        transfer_type: 'MAKER_FEE_PAY',
        entries: '2',
        quantity: '14',
        both_sides: true,
      },
      {
        day: '2023-05-03',
        transfer_type: 'TRANSFER',
        entries: '1',
        quantity: '5',
        both_sides: true,
      },
      {
        day: '2023-06-02',
        transfer_type: 'TRANSFER',
        entries: '1',
        quantity: '3',
        both_sides: true,
      },
    ]);
  });

  test('tell who paid fees, who dealt with whom, and who was active', async () => {
    expect(
      await ask('select party_id, payments, paid from mirror.fees_daily'),
    ).toEqual([{ party_id: PARTY_A, payments: '2', paid: '14' }]);
    expect(
      await ask(
        `select counterparty_id, entries, sent, received from mirror.counterparties where party_id = '${PARTY_B}' order by 1`,
      ),
    ).toEqual([
      { counterparty_id: PARTY_A, entries: '3', sent: '0', received: '17' },
      { counterparty_id: PARTY_C, entries: '1', sent: '0', received: '5' },
    ]);
    expect(
      await ask(
        'select party_id, entries, active_days from mirror.activity order by 1',
      ),
    ).toEqual([
      { party_id: PARTY_A, entries: '2', active_days: '1' },
      { party_id: PARTY_B, entries: '4', active_days: '3' },
      { party_id: PARTY_C, entries: '1', active_days: '1' },
    ]);
    expect(
      await ask(
        `select sum(change) from mirror.balances where party_id = '${PARTY_A}'`,
      ),
    ).toEqual([{ sum: '-17' }]);
  });

  test('show the cadence of checkpoints and how fresh everything is', async () => {
    expect(
      await ask(
        'select at_block, copies, hashes, blocks_since_previous from mirror.checkpoint_cadence order by 1',
      ),
    ).toEqual([
      { at_block: '10', copies: '3', hashes: '2', blocks_since_previous: null },
      { at_block: '25', copies: '1', hashes: '1', blocks_since_previous: '15' },
    ]);
    const fresh = await ask(
      `select subject, items from mirror.freshness where subject in ('latest ledger entry', 'segments not loaded yet') order by 1`,
    );
    expect(fresh).toEqual([
      { subject: 'latest ledger entry', items: '7' },
      { subject: 'segments not loaded yet', items: '0' },
    ]);
  });

  test('are all that mirror_reader can read', async () => {
    const client = new Client({ connectionString: database.url });
    await client.connect();
    try {
      await client.query('set role mirror_reader');
      const { rows } = await client.query<{ name: string; kind: string }>(
        `select relname as name, relkind::text as kind from pg_class c join pg_namespace n on n.oid = relnamespace
          where nspname = 'mirror' and relkind in ('r', 'p', 'v', 'm') and has_table_privilege(c.oid, 'select') order by 1`,
      );
      const views = await ask(
        `select viewname as name, 'v' as kind from pg_views where schemaname = 'mirror' order by 1`,
      );
      expect(rows).toEqual(views);
      for (const { name } of rows)
        await client.query(`select * from mirror.${name} limit 1`);
      await expect(
        client.query('select * from mirror.ledger_entries'),
      ).rejects.toMatchObject({
        code: '42501',
      });
      await expect(
        client.query('create table mirror.x (a int)'),
      ).rejects.toMatchObject({
        code: '42501',
      });
    } finally {
      await client.end();
    }
  });
});

describe('the data dictionary', () => {
  test('names exactly the columns and types that are there', async () => {
    const text = await readFile(
      new URL('../../docs/data-dictionary.md', import.meta.url),
      'utf8',
    );
    // What follows is compared with the lake's own tables.
    const documented = text
      .slice(0, text.indexOf('\n## The lake'))
      .split(/^### `/m)
      .slice(1)
      .map((section) => ({
        relation: section.slice(0, section.indexOf('`')),
        columns: [...section.matchAll(/^\| `(\w+)` \| ([^|]+?) \|/gm)].map(
          ([, name, type]) => `${name} ${type}`,
        ),
      }));
    const views = await ask(
      `select 'mirror.' || viewname as relation from pg_views where schemaname = 'mirror'`,
    );
    const names = documented.map(({ relation }) => relation);
    expect(names).toEqual(
      expect.arrayContaining(views.map(({ relation }) => relation)),
    );
    expect(names).toEqual(
      expect.arrayContaining(
        ['parties', 'checkpoints', 'ledger_entries', 'segments', 'runs'].map(
          (table) => `mirror.${table}`,
        ),
      ),
    );
    for (const { relation, columns } of documented) {
      const found = await ask(
        `select attname || ' ' || format_type(atttypid, atttypmod) as column from pg_attribute
          where attrelid = '${relation}'::regclass and attnum > 0 and not attisdropped order by attnum`,
      );
      expect({ relation, columns }).toEqual({
        relation,
        columns: found.map(({ column }) => column),
      });
    }
  });
});
