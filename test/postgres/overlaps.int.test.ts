/** What keeps known ranges of one ledger from overlapping, without a GiST index. */
import { type Kysely, sql } from 'kysely';
import { describe, expect, test } from 'vitest';
import type { Pool } from 'pg';
import { up as refuseOverlaps } from '../../migrations/0028-overlaps-by-trigger.ts';
import { openWarehouse } from '../../src/postgres/database.ts';
import { freshDatabase, openFreshDatabase } from '../support/database.ts';

const database = await freshDatabase({ isMigrated: true });

/** A range by the days of a month; `asset` undefined stands for every asset. */
interface Days {
  readonly party: string;
  readonly asset?: string;
  readonly from: number;
  readonly to: number;
}

function dayOf(day: number): string {
  return `2026-01-${String(day).padStart(2, '0')}`;
}

async function addCoverage(
  pool: Pool,
  { party, asset, from, to }: Days,
  segmentId?: string,
): Promise<string> {
  const { rows } = await pool.query<{ id: string }>(
    `insert into mirror.coverage (party_id, asset_id, from_time, to_time, sides, segment_id)
     values ($1, $2, $3, $4, 'both', $5) returning coverage_id as id`,
    [party, asset ?? null, dayOf(from), dayOf(to), segmentId ?? null],
  );
  return rows[0]?.id ?? '';
}

async function addSegment(
  pool: Pool,
  { party, asset, from, to }: Days,
  status: 'current' | 'superseded' = 'current',
): Promise<string> {
  const { rows } = await pool.query<{ id: string }>(
    `insert into mirror.segments (party_id, asset_id, from_time, to_time, open, object_key, rows,
       bytes, sha256, object_bytes, object_sha256, digest, row_form, columns, status)
     values ($1, $2, $3, $4, false, gen_random_uuid(), 1, 1, '', 1, '', '', '', '{}', $5)
     returning segment_id as id`,
    [party, asset ?? null, dayOf(from), dayOf(to), status],
  );
  return rows[0]?.id ?? '';
}

const REFUSED = { code: '23P01' };

describe.each([
  ['coverage', addCoverage],
  ['segments', addSegment],
] as const)('two ranges of one ledger in mirror.%s', (table, add) => {
  test.each<[string, Omit<Days, 'party'>, Omit<Days, 'party'>]>([
    ['of all assets', { from: 1, to: 5 }, { from: 4, to: 8 }],
    ['one inside the other', { from: 1, to: 8 }, { from: 3, to: 4 }],
    [
      'of one asset and of all',
      { asset: 'a', from: 1, to: 5 },
      { from: 2, to: 3 },
    ],
    [
      'of all assets and of one',
      { from: 1, to: 5 },
      { asset: 'a', from: 2, to: 3 },
    ],
    [
      'of one asset',
      { asset: 'a', from: 1, to: 5 },
      { asset: 'a', from: 2, to: 3 },
    ],
  ])('are refused if they overlap: %s', async (name, one, other) => {
    const { pool } = database;
    const party = `${table} ${name}`;
    await add(pool, { party, ...one });
    await expect(add(pool, { party, ...other })).rejects.toMatchObject(REFUSED);
  });

  test.each<[string, Omit<Days, 'party'>, Days]>([
    ['that touch', { from: 1, to: 5 }, { party: 'same', from: 5, to: 8 }],
    [
      'of two assets',
      { asset: 'a', from: 1, to: 5 },
      { party: 'same', asset: 'b', from: 1, to: 5 },
    ],
    ['of two parties', { from: 1, to: 5 }, { party: 'other', from: 1, to: 5 }],
  ])('are taken: %s', async (name, one, other) => {
    const { pool } = database;
    await add(pool, { party: `${table} ${name} same`, ...one });
    const party = `${table} ${name} ${other.party}`;
    await expect(add(pool, { ...other, party })).resolves.toMatch(/\d/);
  });

  test('are refused if one is changed until it overlaps', async () => {
    const { pool } = database;
    const party = `${table} changed`;
    await add(pool, { party, from: 1, to: 5 });
    await add(pool, { party, from: 5, to: 8 });
    await expect(
      pool.query(
        `update mirror.${table} set from_time = $2 where party_id = $1 and from_time = $3`,
        [party, dayOf(4), dayOf(5)],
      ),
    ).rejects.toMatchObject(REFUSED);
  });

  test('are found without a GiST index, which the planner would use to read them', async () => {
    const { rows } = await database.pool.query(
      `select indexdef from pg_indexes where schemaname = 'mirror' and tablename = $1
         and indexdef not like '% USING btree %'`,
      [table],
    );
    expect(rows).toEqual([]);
  });
});

test('superseded segments overlap what they like, until one becomes current again', async () => {
  const { pool } = database;
  const days = { party: 'superseded', from: 1, to: 5 };
  const former = await addSegment(pool, days, 'superseded');
  await addSegment(pool, days);
  await expect(
    pool.query(
      `update mirror.segments set status = 'current' where segment_id = $1`,
      [former],
    ),
  ).rejects.toMatchObject(REFUSED);
});

test('of overlapping ranges in an older database, one is kept: with entries before without, and older before newer', async () => {
  await using older = await openFreshDatabase({ isMigrated: true });
  const { pool } = older;
  await pool.query(`
    drop trigger coverage_do_not_overlap on mirror.coverage;
    drop trigger segments_do_not_overlap on mirror.segments;
    drop function mirror.refuse_overlapping_coverage();
    drop function mirror.refuse_overlapping_segments();
    alter table mirror.coverage add constraint coverage_party_id_text_range_tstzrange_excl check (true);
    alter table mirror.segments add constraint segments_party_id_text_range_tstzrange_excl check (true)`);
  const one = { party: 'one', from: 1, to: 5 };
  const two = { party: 'two', from: 1, to: 5 };
  const first = await addSegment(pool, one);
  const second = await addSegment(pool, { ...one, to: 8 });
  const kept = [
    await addCoverage(pool, one, first),
    await addCoverage(pool, { party: 'three', from: 1, to: 5 }),
  ];
  await addCoverage(pool, { ...one, to: 8 }, second);
  // The same segment twice: it stays.
  await addCoverage(pool, one, first);
  await addCoverage(pool, two);
  const withEntries = await addSegment(pool, two);
  kept.push(await addCoverage(pool, two, withEntries));

  await using warehouse = openWarehouse({
    url: older.url,
    onIdleError: () => undefined,
  });
  await warehouse.db.transaction().execute(async (tx) => {
    await sql`set local search_path = pg_catalog`.execute(tx);
    await refuseOverlaps(tx as unknown as Kysely<unknown>);
  });
  const { rows } = await pool.query<{ id: string }>(
    'select coverage_id as id from mirror.coverage order by coverage_id',
  );
  expect(rows.map(({ id }) => id)).toEqual(
    kept.toSorted((a, b) => Number(a) - Number(b)),
  );
  const current = await pool.query<{ id: string }>(
    `select segment_id as id from mirror.segments where status = 'current' order by 1`,
  );
  expect(current.rows.map(({ id }) => id)).toEqual([first, withEntries]);
});
