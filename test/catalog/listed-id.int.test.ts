/** The spelling by which a party is requested. */
import { describe, expect, test } from 'vitest';
import { distrustRespelled } from '../../src/catalog/listed-id.ts';
import { ExportStore } from '../../src/exports/store/export-store.ts';
import { findWitnesses } from '../../src/lists/store/list-state.ts';
import { openWarehouse } from '../../src/postgres/database.ts';
import { freshDatabase } from '../support/database.ts';

const database = await freshDatabase({ isMigrated: true });
const PARTY = 'ab'.repeat(32);

/** Begins a reading of the list, which shows one party so far. */
async function beginReading(key: string, extra: object | null): Promise<void> {
  await database.pool.query(
    `with audit as (
       insert into mirror.generations (list, epoch, kind) values ('parties', 1, 'audit')
       returning generation_id)
     insert into mirror.audit_rows (generation_id, pos, key, extra)
     select generation_id, 1, $1, $2::jsonb from audit`,
    [key, extra && JSON.stringify(extra)],
  );
}

test.each([
  ['the stored one while no reading is under way', undefined, `old-${PARTY}`],
  [
    'the one of a reading that is not claimed yet',
    `new-${PARTY}`,
    `new-${PARTY}`,
  ],
  ['the stored id, if that reading shows it so', null, PARTY],
])('is %s', async (_, audited, expected) => {
  const { pool } = database;
  await pool.query(
    'delete from mirror.exports; delete from mirror.generations; delete from mirror.parties',
  );
  await pool.query(
    `insert into mirror.parties (party_id, first_epoch, epoch, pos, extra)
     values ($1, 1, 1, 1, jsonb_build_object('id', 'old-' || $1::text))`,
    [PARTY],
  );
  if (audited !== undefined)
    await beginReading(PARTY, audited === null ? null : { id: audited });
  await using warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
  });

  const lease = await new ExportStore(warehouse.db).acquire({
    partyId: PARTY,
    assetId: undefined,
  });
  expect(lease?.scope.listedAs ?? PARTY).toBe(expected);

  await pool.query(
    `update mirror.identity set source_url = 'http://former.example/'`,
  );
  expect(await findWitnesses(warehouse.db, 'http://new.example/')).toEqual([
    expected,
  ]);
});

describe('a party that an unclaimed reading of the list did not show', () => {
  const OTHER = 'cd'.repeat(32);
  async function isUnlisted(
    shown: string | undefined,
    isBeingRead = false,
  ): Promise<boolean | undefined> {
    const { pool } = database;
    await pool.query(
      'delete from mirror.exports; delete from mirror.generations; delete from mirror.list_leases',
    );
    if (shown !== undefined) await beginReading(shown, null);
    if (isBeingRead)
      await pool.query(
        `insert into mirror.list_leases (list, token, lease_until)
         values ('parties', gen_random_uuid(), clock_timestamp() + interval '1 minute')`,
      );
    await using warehouse = openWarehouse({
      url: database.url,
      onIdleError: () => undefined,
    });
    const lease = await new ExportStore(warehouse.db).acquire({
      partyId: PARTY,
      assetId: undefined,
    });
    return lease?.scope.isUnlisted;
  }

  test('is unlisted', async () => {
    expect(await isUnlisted(OTHER)).toBe(true);
  });

  test('is unlisted while a reading that was dropped is doubted', async () => {
    const { pool } = database;
    await pool.query(
      `insert into mirror.networks (epoch) values (1) on conflict do nothing`,
    );
    const doubt = `insert into mirror.doubts (subject, epoch, code) values ('parties', 1, $1)`;
    await pool.query(doubt, ['ROW_NOT_UNDERSTOOD']);
    expect(await isUnlisted(undefined)).toBeUndefined();
    await pool.query(doubt, ['NEWEST_ROWS_MISSING']);
    expect(await isUnlisted(undefined)).toBe(true);
    expect(await isUnlisted(PARTY)).toBeUndefined();
    await pool.query('delete from mirror.doubts');
  });

  test('is not unlisted if that reading failed', async () => {
    await database.pool.query(
      `insert into mirror.runs (run_id, kind, subject, state, verdict, finished_at)
       values (gen_random_uuid(), 'sync', 'parties', 'done', 'failed', clock_timestamp())`,
    );
    expect(await isUnlisted(OTHER)).toBeUndefined();
    await database.pool.query(
      `insert into mirror.runs (run_id, kind, subject, state, verdict, finished_at)
       values (gen_random_uuid(), 'sync', 'parties', 'done', 'suspicious', clock_timestamp())`,
    );
    expect(await isUnlisted(OTHER)).toBe(true);
  });

  test('is not unlisted if the reading showed it, or while the list is read', async () => {
    expect(await isUnlisted(undefined)).toBeUndefined();
    expect(await isUnlisted(PARTY)).toBeUndefined();
    expect(await isUnlisted(OTHER, true)).toBeUndefined();
  });
});

test.each([
  ['upper case', 'lower case', true],
  [null, 'upper case', true],
  ['upper case', null, true],
  ['upper case', 'upper case', false],
  [null, null, false],
])(
  'a spelling that goes from %s to %s makes ranges without entries before others be asked for again: %s',
  async (before, after, expected) => {
    const { pool } = database;
    await pool.query(
      `delete from mirror.generations; delete from mirror.parties;
       delete from mirror.coverage; delete from mirror.segments`,
    );
    await pool.query(
      `insert into mirror.parties (party_id, first_epoch, epoch, pos, extra)
       values ($1, 1, 1, 1, $2)`,
      [PARTY, before && JSON.stringify({ id: before })],
    );
    await pool.query(
      `insert into mirror.coverage (party_id, from_time, to_time, sides)
       select party, day, day + '1 day'::interval, 'both'
       from unnest(array[$1, 'other']) party,
         unnest(array['2026-01-01', '2026-01-03']::timestamptz[]) day`,
      [PARTY],
    );
    await pool.query(
      `insert into mirror.segments (party_id, from_time, to_time, object_key, rows, bytes,
         sha256, object_bytes, object_sha256, digest, row_form, columns)
       values ($1, '2026-01-02', '2026-01-03', 'key', 1, 1, '', 1, '', '', 'f', '{}')`,
      [PARTY],
    );
    await beginReading(PARTY, after === null ? null : { id: after });
    await using warehouse = openWarehouse({
      url: database.url,
      onIdleError: () => undefined,
    });
    const { rows } = await pool.query<{ id: string }>(
      'select generation_id::text as id from mirror.generations',
    );
    await distrustRespelled(warehouse.db, BigInt(rows[0]?.id ?? 0));
    const { rows: distrusted } = await pool.query(
      `select party_id, from_time < '2026-01-02' as is_older
       from mirror.coverage where checked_at = to_timestamp(0)`,
    );
    expect(distrusted).toEqual(
      expected ? [{ party_id: PARTY, is_older: true }] : [],
    );
  },
);
