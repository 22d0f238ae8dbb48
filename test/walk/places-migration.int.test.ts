/** A database from before a party's place was part of its row keeps every place of every epoch. */
import { Kysely, PostgresDialect } from 'kysely';
import { expect, test } from 'vitest';
import { up as mirror } from '../../migrations/0001-mirror.ts';
import { up as places } from '../../migrations/0004-places-of-parties.ts';
import { freshDatabase } from '../support/database.ts';

const database = await freshDatabase();

test('places move to their parties, those of earlier epochs aside', async () => {
  const { pool } = database;
  const db = new Kysely<unknown>({ dialect: new PostgresDialect({ pool }) });
  await mirror(db);
  await pool.query(`insert into mirror.parties (party_id, first_epoch) values
    ('a', 1), ('b', 1), ('network', 1)`);
  // 'c' has lost its row: its place is not lost with it.
  await pool.query(`insert into mirror.places (epoch, party_id, pos, last_seen_walk, gone_since) values
    (1, 'a', 1024, 1, null), (2, 'a', 2048, 4, null), (1, 'b', 3072, 2, '2026-01-01 00:00Z'), (2, 'c', 1024, null, null)`);
  const listed = `select epoch, party_id, pos::text, last_seen_walk::text, gone_since::text
    from mirror.places order by epoch, pos`;
  const before = await pool.query(listed);
  await places(db);
  expect((await pool.query(listed)).rows).toEqual(before.rows);
  const parties = await pool.query(
    'select party_id, first_epoch, epoch, pos::text from mirror.parties order by 1',
  );
  expect(parties.rows).toEqual([
    { party_id: 'a', first_epoch: 1, epoch: 2, pos: '2048' },
    { party_id: 'b', first_epoch: 1, epoch: 1, pos: '3072' },
    { party_id: 'c', first_epoch: 2, epoch: 2, pos: '1024' },
    { party_id: 'network', first_epoch: 1, epoch: null, pos: null },
  ]);
  const aside = await pool.query('select epoch, party_id from mirror.former_places');
  expect(aside.rows).toEqual([{ epoch: 1, party_id: 'a' }]);
});
