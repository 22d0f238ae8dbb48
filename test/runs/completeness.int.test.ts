/** The one query that says what is covered, over real Postgres. */
import { beforeEach, describe, expect, it } from 'vitest';
import { openWarehouse } from '../../src/postgres/database.ts';
import { readCompleteness, recordScope } from '../../src/runs/store/completeness.ts';
import { freshDatabase } from '../support/database.ts';

const database = await freshDatabase({ isMigrated: true });
const warehouse = openWarehouse({ url: database.url, onIdleError: () => undefined });
const { db } = warehouse;
const id = (digit: string): string => digit.repeat(64);

beforeEach(async () => {
  await database.pool.query(
    `truncate mirror.parties, mirror.coverage, mirror.segments, mirror.exports cascade`,
  );
  await database.pool.query(`delete from mirror.networks where epoch > 1`);
  await database.pool.query(`update mirror.source_state set profile = '{}'`);
  await recordScope(db, undefined);
  await database.pool.query(`
    insert into mirror.parties (party_id, first_epoch, epoch, pos)
    select repeat(d, 64), 1, 1, ascii(d) from unnest(array['1','2','3']) d
    union all select 'network', 1, null, null`);
});

async function cover(
  party: string,
  from: string,
  to: string,
  more: { open?: boolean; asset?: string } = {},
): Promise<void> {
  await database.pool.query(
    `insert into mirror.coverage (party_id, asset_id, from_time, to_time, open, sides) values ($1, $2, $3, $4, $5, 'both')`,
    [party, more.asset ?? null, from, to, more.open ?? false],
  );
}

const BEGINNING = '1970-01-01T00:00:00Z';

describe('the completeness of the ledgers', () => {
  it('counts a ledger that was never asked as missing, and leaves `network` out', async () => {
    await cover(id('1'), BEGINNING, '2023-05-01T00:00:00Z');
    expect(await readCompleteness(db)).toEqual({
      listed: 3,
      configured: null,
      wanted: 3,
      covered: 1,
      neverAsked: 2,
      coveredTo: expect.stringMatching(/^2023-05-01T00:00:00/) as string,
      openDoubts: 0,
    });
  });

  it('reaches as far as the ledger that is covered the least far, over ranges that touch', async () => {
    for (const digit of ['1', '2', '3']) await cover(id(digit), BEGINNING, '2023-05-01T00:00:00Z');
    await cover(id('1'), '2023-05-01T00:00:00Z', '2023-06-01T00:00:00Z');
    const all = await readCompleteness(db);
    expect(all).toMatchObject({ covered: 3, neverAsked: 0 });
    expect(all.coveredTo).toMatch(/^2023-05-01/);
  });

  it.each([
    ['begins late', [['2023-01-01T00:00:00Z', '2023-05-01T00:00:00Z', false]]],
    [
      'has a gap',
      [
        [BEGINNING, '2023-05-01T00:00:00Z', false],
        ['2023-05-02T00:00:00Z', '2023-05-03T00:00:00Z', false],
      ],
    ],
    ['is open', [[BEGINNING, '2023-05-01T00:00:00Z', true]]],
  ] as const)('does not count a ledger whose coverage %s', async (_what, ranges) => {
    for (const digit of ['2', '3']) await cover(id(digit), BEGINNING, '2023-05-01T00:00:00Z');
    for (const [from, to, open] of ranges) await cover(id('1'), from, to, { open });
    expect(await readCompleteness(db)).toMatchObject({ covered: 2, wanted: 3 });
  });

  it('does not count a ledger of which a segment is quarantined, and does not call it never asked', async () => {
    for (const digit of ['1', '2', '3']) await cover(id(digit), BEGINNING, '2023-05-01T00:00:00Z');
    await database.pool.query(
      `with lost as (
         insert into mirror.segments (party_id, from_time, to_time, object_key, rows, bytes, sha256, object_bytes,
           object_sha256, digest, row_form, columns, quarantine_reason)
         values ($1, '1970-01-01', '2023-05-01', 'lost', 1, 1, '', 1, '', '', '', '{}', '{"code": "OBJECT_MISSING"}')
         returning segment_id, party_id)
       update mirror.coverage c set segment_id = lost.segment_id from lost where c.party_id = lost.party_id`,
      [id('1')],
    );
    expect(await readCompleteness(db)).toMatchObject({ covered: 2, wanted: 3, neverAsked: 0 });
  });

  it('wants every asset that was ever asked for where the source demands one', async () => {
    for (const digit of ['2', '3']) await cover(id(digit), BEGINNING, '2023-05-01T00:00:00Z');
    await cover(id('1'), BEGINNING, '2023-05-01T00:00:00Z', { asset: id('a') });
    expect(await readCompleteness(db)).toMatchObject({ covered: 2 });
    await database.pool.query(`update mirror.source_state set profile = '{"assetRequired": true}'`);
    await database.pool.query(
      `insert into mirror.exports (party_id, asset_id) values ('${id('1')}', '${id('a')}'), ('${id('1')}', '${id('b')}')`,
    );
    expect(await readCompleteness(db)).toMatchObject({ covered: 2 });
    await cover(id('1'), BEGINNING, '2023-05-01T00:00:00Z', { asset: id('b') });
    expect(await readCompleteness(db)).toMatchObject({ covered: 3 });
  });

  it('begins anew with an epoch: what was checked before says nothing of the new chain', async () => {
    for (const digit of ['1', '2', '3']) await cover(id(digit), BEGINNING, '2023-05-01T00:00:00Z');
    await database.pool.query(`insert into mirror.networks (epoch) values (2)`);
    await database.pool.query(
      `update mirror.parties set epoch = 2 where epoch is not null and party_id <> '${id('3')}'`,
    );
    expect(await readCompleteness(db)).toMatchObject({ listed: 2, covered: 0, neverAsked: 2 });
    await cover(id('1'), '2023-05-01T00:00:00Z', '2023-05-02T00:00:00Z');
    expect(await readCompleteness(db)).toMatchObject({ listed: 2, covered: 1, neverAsked: 1 });
  });

  it('is that of the configured parties where not all are configured, listed or not', async () => {
    await recordScope(db, [id('1'), id('9')]);
    await cover(id('1'), BEGINNING, '2023-05-01T00:00:00Z');
    expect(await readCompleteness(db)).toMatchObject({
      listed: 3,
      configured: 2,
      wanted: 2,
      covered: 1,
      neverAsked: 1,
    });
  });
});
