import { writeFile } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { beforeEach, describe, expect, test } from 'vitest';
import { LoadStore } from '../../src/warehouse/store/load-store.ts';
import { loadAll } from '../../src/warehouse/load-all.ts';
import { loadParty, type LoadDeps } from '../../src/warehouse/load-all.ts';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import { waitFor } from '../support/wait-for.ts';
import { loadWorld } from './load-world.ts';
import { HEADER_12, HEADER_13 } from '../ledger/csv.ts';
import { PARTY_A, PARTY_B, publish, row12, row13 } from './published.ts';
import {
  loadedRowsByParty,
  publishedSegments,
} from '../support/mirror-state.ts';

const world = await loadWorld();
const { database, warehouse } = world;

const signal = new AbortController().signal;
const repository = new LoadStore(warehouse);

/** The real store, but for the transaction that puts segments in each other's place. */
function replacing(replace: LoadStore['replace']): LoadStore {
  return new Proxy(repository, {
    get: (store, name) => {
      if (name === 'replace') return replace;
      return name === 'toLoad' || name === 'quarantine'
        ? store[name].bind(store)
        : Reflect.get(store, name);
    },
  });
}
const MAY = { from: '2023-05-01T00:00:00Z', to: '2023-06-01T00:00:00Z' };

describe('loadParty', () => {
  let objects: ObjectStore;
  let deps: LoadDeps;

  beforeEach(() => {
    ({ objects } = world);
    deps = { repository, objects };
  });

  async function entries(): Promise<readonly Record<string, unknown>[]> {
    const { rows } = await database.pool.query(
      `select party_id, vega_time at time zone 'UTC' || '' as at, quantity, effect, transfer_type, asset_id,
         account_from_market_id, account_from_party_id, account_from_account_type, account_from_balance,
         account_to_market_id, account_to_party_id, account_to_account_type, account_to_balance, extra, segment_id
       from mirror.ledger_entries order by vega_time, quantity, segment_id`,
    );
    return rows;
  }

  test('reads the same entry from both families of releases', async () => {
    const entry = {
      time: '2023-05-01 12:00:00.1234+02',
      from: PARTY_A,
      to: 'network',
    };
    const old = await publish(database.pool, objects, {
      party: PARTY_A,
      ...MAY,
      rows: [row12(entry)],
    });
    const later = await publish(database.pool, objects, {
      party: PARTY_B,
      ...MAY,
      header: HEADER_13,
      rows: [row13(entry, PARTY_B)],
      compression: 'gzip',
    });

    await loadParty(PARTY_A, deps, signal);
    await loadParty(PARTY_B, deps, signal);

    const [first, second] = await entries();
    expect(first).toMatchObject({
      at: '2023-05-01 10:00:00.1234',
      quantity: '1000000',
      effect: null,
      transfer_type: 'MARGIN_HIGH',
      account_from_account_type: 'MARGIN',
      account_to_market_id: null,
      account_to_party_id: 'network',
      account_to_balance: '12345678901234567890123',
    });
    expect(second).toEqual({
      ...first,
      party_id: PARTY_B,
      effect: '-1000000',
      segment_id: `${later.segmentId}`,
    });
    const digests = (await publishedSegments(database.pool)).map(
      ({ valuesDigest }) => valuesDigest,
    );
    expect([digests.length, new Set(digests).size]).toEqual([2, 1]);
    expect(old.segmentId).not.toBe(later.segmentId);
  });

  test('keeps repeated rows, knows months, and changes nothing the second time', async () => {
    const rows = [
      row12({ time: '2023-05-31 23:59:59.999999+00' }),
      row12({ time: '2023-05-31 23:59:59.999999+00' }),
      row12({ time: '2023-04-01 00:00:00+00' }),
      row12({ time: '2023-12-31 23:59:59+00', quantity: `1${'0'.repeat(60)}` }),
    ];
    const range = { from: '1970-01-01T00:00:00Z', to: '2024-01-01T00:00:00Z' };
    await publish(database.pool, objects, { party: PARTY_A, ...range, rows });

    const first = await loadParty(PARTY_A, deps, signal);
    const loaded = await entries();
    const again = await loadParty(PARTY_A, deps, signal);

    expect(first).toMatchObject({ segments: 1, rows: 4n, quarantined: [] });
    expect(again).toMatchObject({ segments: 0, rows: 0n });
    expect(loaded).toHaveLength(4);
    expect(await entries()).toEqual(loaded);
    const months = await database.pool.query(
      `select to_char(month, 'YYYY-MM') as month, rows from mirror.segment_months order by 1`,
    );
    expect(months.rows).toEqual([
      { month: '2023-04', rows: '1' },
      { month: '2023-05', rows: '2' },
      { month: '2023-12', rows: '1' },
    ]);
  });

  test('replaces superseded rows in one transaction', async () => {
    const open = {
      party: PARTY_A,
      from: '2023-05-01T00:00:00Z',
      to: '2023-05-03T00:00:00Z',
      open: true,
    };
    const day1 = row12({ time: '2023-05-01 01:00:00+00' });
    const day2 = row12({ time: '2023-05-02 01:00:00+00' });
    await publish(database.pool, objects, { ...open, rows: [day1, day2] });
    await loadParty(PARTY_A, deps, signal);

    await publish(database.pool, objects, {
      ...open,
      open: false,
      to: '2023-05-02T00:00:00Z',
      rows: [day1],
    });
    const closed = {
      ...open,
      from: '2023-05-02T00:00:00Z',
      to: '2023-05-04T00:00:00Z',
    };
    const late = row12({ time: '2023-05-03 01:00:00+00' });
    await publish(database.pool, objects, { ...closed, rows: [day2, late] });
    expect(await entries()).toHaveLength(2);
    const result = await loadParty(PARTY_A, deps, signal);

    expect(result).toMatchObject({ segments: 2, rows: 3n, removedRows: 2n });
    expect((await entries()).map((row) => row['at'])).toEqual([
      '2023-05-01 01:00:00',
      '2023-05-02 01:00:00',
      '2023-05-03 01:00:00',
    ]);
    const segments = await publishedSegments(database.pool);
    expect(
      segments.map(({ isCurrent, isLoaded }) => [isCurrent, isLoaded]),
    ).toEqual([
      [false, false],
      [true, true],
      [true, true],
    ]);
  });

  test('quarantines what it cannot read, and keeps the rows that it would have replaced', async () => {
    const range = {
      party: PARTY_A,
      from: '2023-05-01T00:00:00Z',
      to: '2023-05-02T00:00:00Z',
    };
    await publish(database.pool, objects, {
      ...range,
      rows: [row12({ time: '2023-05-01 01:00:00+00' })],
    });
    await loadParty(PARTY_A, deps, signal);
    const bad = row12({ time: '2023-05-01 01:00:00+00', quantity: '1e6' });
    await publish(database.pool, objects, { ...range, rows: [bad] });
    const next = {
      ...range,
      from: '2023-05-02T00:00:00Z',
      to: '2023-05-03T00:00:00Z',
    };
    await publish(database.pool, objects, {
      ...next,
      rows: [row12({ time: '2023-05-02 01:00:00+00' })],
    });

    const result = await loadParty(PARTY_A, deps, signal);

    expect(result).toMatchObject({ segments: 1, rows: 1n, removedRows: 0n });
    expect(result.quarantined).toMatchObject([
      { code: 'BAD_VALUE', message: expect.stringContaining('row 1 of') },
    ]);
    expect(await entries()).toHaveLength(2);
    expect(await repository.partiesToLoad(undefined, 10)).toEqual([PARTY_A]);
    const again = await loadParty(PARTY_A, deps, signal);
    expect(again).toMatchObject({
      segments: 0,
      quarantined: result.quarantined,
    });
  });

  test('counts rows whose effect contradicts their accounts, and keeps them as they were sent', async () => {
    const time = '2023-05-01 01:00:00+00';
    const own = { time, from: PARTY_A, to: PARTY_A };
    const out = row13({ time, from: PARTY_A, to: PARTY_B }, PARTY_A);
    const into = row13({ time, from: PARTY_B, to: PARTY_A }, PARTY_A);
    const between = row13(own, PARTY_A);
    const wrong = [
      out.replace(',-1000000,', ',1000000,'),
      into.replace(',1000000,1000000,', ',1000000,999999,'),
      between.replace(',0,', ',-1000000,'),
      row13({ time, from: PARTY_B, to: 'network' }, 'network'),
      out.replace(',-1000000,', ',,'),
    ];
    const nothing = row13(
      { time, quantity: '0', from: PARTY_A, to: PARTY_B },
      PARTY_A,
    ).replace(',-0,', ',0,');
    const rows = [out, into, between, nothing, ...wrong];
    await publish(database.pool, objects, {
      party: PARTY_A,
      ...MAY,
      header: HEADER_13,
      rows,
    });

    const outcome = await loadAll(deps, signal);

    expect(outcome).toMatchObject({
      verdict: 'suspicious',
      rows: 9n,
      effectsContradicted: 5n,
    });
    expect(await publishedSegments(database.pool)).toMatchObject([
      { evidence: { effectsContradicted: 5 } },
    ]);
    const effects = (await entries()).map((row) => row['effect']);
    expect(effects).toEqual(
      expect.arrayContaining(['1000000', '999999', null]),
    );
  });

  test('keeps columns that nobody knew, whatever they hold', async () => {
    const header = `${HEADER_12},note,"odd, ""name"""`;
    const row = `${row12({ time: '2023-05-01 01:00:00+00' })},"tab\there, \\N and\nline ""€""",`;
    await publish(database.pool, objects, {
      party: PARTY_A,
      ...MAY,
      header,
      rows: [row],
    });

    const result = await loadParty(PARTY_A, deps, signal);

    expect(result.quarantined).toEqual([]);
    expect((await entries())[0]?.['extra']).toEqual({
      note: 'tab\there, \\N and\nline "€"',
      'odd, "name"': '',
    });
  });

  test.each([
    [
      'other bytes',
      (content: Buffer) =>
        content.with(content.length >> 1, content[content.length >> 1]! ^ 1),
    ],
    ['a lost end', (content: Buffer) => content.subarray(0, -20)],
  ])('refuses an object with %s as a whole', async (_name, damage) => {
    const rows = Array.from({ length: 5000 }, (_, n) =>
      row12({ time: `2023-05-01 01:00:00.${String(n).padStart(6, '0')}+00` }),
    );
    const { key } = await publish(database.pool, objects, {
      party: PARTY_A,
      ...MAY,
      rows,
      compression: 'none',
    });
    const path = fileURLToPath(new URL(key, `${objects.url}/`));
    const content = await (await objects.read(key, signal)).toArray();
    await writeFile(path, damage(Buffer.concat(content)));

    const result = await loadParty(PARTY_A, deps, signal);

    expect(result.quarantined).toHaveLength(1);
    expect(await entries()).toEqual([]);
  });

  test('loads once when two load at the same time', async () => {
    const parties = [PARTY_A, PARTY_A, PARTY_B];
    const rows = Array.from({ length: 3000 }, (_, n) =>
      row12({
        time: `20${10 + (n % 13)}-0${1 + (n % 9)}-01 00:00:00.${String(n).padStart(6, '0')}+00`,
      }),
    );
    const range = { from: '1970-01-01T00:00:00Z', to: '2024-01-01T00:00:00Z' };
    for (const party of [PARTY_A, PARTY_B])
      await publish(database.pool, objects, { party, ...range, rows });

    const results = await Promise.all(
      parties.map((party) => loadParty(party, deps, signal)),
    );

    expect(results.reduce((sum, result) => sum + result.rows, 0n)).toBe(6000n);
    expect(await loadedRowsByParty(database.pool)).toEqual(
      new Map([
        [PARTY_A, 3000],
        [PARTY_B, 3000],
      ]),
    );
  });

  describe('when it is broken off', () => {
    const rows = Array.from({ length: 20_000 }, (_, n) =>
      row12({
        time: `2023-0${1 + (n % 5)}-01 00:00:00.${String(n).padStart(6, '0')}+00`,
      }),
    );

    /** The store hands out a part of the object, then `then` says what happens. */
    function breaking(then: () => void): ObjectStore {
      const read: ObjectStore['read'] = async (key, readSignal) => {
        const whole = await objects.read(key, readSignal);
        return Readable.from(
          (async function* () {
            for await (const chunk of whole as AsyncIterable<Buffer>) {
              yield chunk.subarray(0, chunk.length >> 1);
              then();
              yield chunk.subarray(chunk.length >> 1);
            }
          })(),
        );
      };
      return new Proxy(objects, {
        get: (store, name) =>
          name === 'read' ? read : Reflect.get(store, name),
      });
    }

    async function expectWholeAfterwards(): Promise<void> {
      expect(await entries()).toEqual([]);
      const segments = await publishedSegments(database.pool);
      expect(
        segments.filter(
          ({ isLoaded, isQuarantined }) => isLoaded || isQuarantined,
        ),
      ).toEqual([]);
      expect(await loadParty(PARTY_A, deps, signal)).toMatchObject({
        rows: 20_000n,
      });
      expect(await entries()).toHaveLength(20_000);
    }

    beforeEach(async () => {
      const range = {
        from: '2023-01-01T00:00:00Z',
        to: '2023-06-01T00:00:00Z',
      };
      await publish(database.pool, objects, {
        party: PARTY_A,
        ...range,
        rows,
        compression: 'none',
      });
    });

    test('keeps and quarantines nothing where the store failed, and the next try loads it', async () => {
      const store = breaking(() => {
        throw Object.assign(new Error('reset'), { code: 'ECONNRESET' });
      });
      await expect(
        loadParty(PARTY_A, { repository, objects: store }, signal),
      ).rejects.toMatchObject({
        code: 'OBJECT_READ_BROKE',
      });
      await expectWholeAfterwards();
    });

    test('keeps and quarantines nothing where its signal ended it', async () => {
      const stop = new AbortController();
      const store = breaking(() => stop.abort(new Error('told to stop')));
      await expect(
        loadParty(PARTY_A, { repository, objects: store }, stop.signal),
      ).rejects.toThrow('told to stop');
      await expectWholeAfterwards();
    });

    test('keeps and quarantines nothing where the database ended it', async () => {
      let isKilled = false;
      // What was written may still wait on this side for the COPY to begin.
      const kill = (): Promise<unknown> =>
        waitFor(
          async () => {
            const { rowCount } = await database.pool.query(
              `select pg_terminate_backend(pid) from pg_stat_activity
                where datname = current_database() and pid <> pg_backend_pid() and query ilike 'copy mirror%'`,
            );
            return (rowCount ?? 0) > 0;
          },
          { what: 'the COPY' },
        );
      const replace: LoadDeps['repository']['replace'] = (
        party,
        replacement,
        write,
        replaceSignal,
      ) =>
        repository.replace(
          party,
          replacement,
          (segment, sink) =>
            write(segment, {
              ...sink,
              write: async (chunk) => {
                await sink.write(chunk);
                if (!isKilled) await kill();
                isKilled = true;
              },
            }),
          replaceSignal,
        );
      const watched = replacing(replace);
      await expect(
        loadParty(PARTY_A, { repository: watched, objects }, signal),
      ).rejects.toMatchObject({
        code: expect.stringMatching(/^DATABASE_/),
      });
      await expectWholeAfterwards();
    });

    test('loads the newer segment where its own was superseded meanwhile', async () => {
      const newer = {
        party: PARTY_A,
        from: '2023-01-01T00:00:00Z',
        to: '2023-06-02T00:00:00Z',
      };
      let isPublished = false;
      const replace: LoadDeps['repository']['replace'] = (
        party,
        replacement,
        write,
        replaceSignal,
      ) =>
        repository.replace(
          party,
          replacement,
          async (segment, sink) => {
            const sums = await write(segment, sink);
            if (!isPublished)
              await publish(database.pool, objects, {
                ...newer,
                rows: rows.slice(0, 5),
              });
            isPublished = true;
            return sums;
          },
          replaceSignal,
        );
      const racing = replacing(replace);
      const result = await loadParty(
        PARTY_A,
        { repository: racing, objects },
        signal,
      );
      expect(result).toMatchObject({ segments: 1, rows: 5n, quarantined: [] });
      expect(await entries()).toHaveLength(5);
    });
  });
});
