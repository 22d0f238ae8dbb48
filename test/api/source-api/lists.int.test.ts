/**
 * The mirror's own rules of paging, where they differ from the source's, and what a page
 * costs.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openRows } from '../../../src/postgres/api-rows.ts';
import { Cursors } from '../../../src/api/source-api/cursors.ts';
import { readCursorSecret } from '../../../src/api/source-api/store/list-rows.ts';
import { freshWarehouse, startApi } from '../mirror.ts';
import {
  addCheckpoints,
  addEpoch,
  addGeneration,
  addParties,
} from '../../support/mirror-arrange.ts';

const PARTIES = 100_000;
const warehouse = await freshWarehouse();
const { pool } = warehouse;
const api = await startApi(warehouse);
afterAll(() =>
  Promise.all([api[Symbol.asyncDispose](), warehouse[Symbol.asyncDispose]()]),
);

interface Answer {
  readonly edges: readonly {
    readonly node: Readonly<Record<string, string>>;
    readonly cursor: string;
  }[];
  readonly pageInfo: {
    readonly hasNextPage: boolean;
    readonly hasPreviousPage: boolean;
    readonly endCursor: string;
    readonly startCursor: string;
  };
}

async function ask(
  list: 'parties' | 'checkpoints',
  query: string,
): Promise<Answer> {
  const response = await fetch(`${api.url}/api/v2/${list}?${query}`);
  if (!response.ok)
    throw new Error(
      `${query} answered ${response.status}: ${await response.text()}`,
    );
  return ((await response.json()) as Record<string, Answer>)[list]!;
}

beforeAll(async () => {
  await addEpoch(pool, 2);
  await addParties(pool, ['ff'], 1);
  const ids = Array.from({ length: PARTIES }, (_, index) =>
    (index + 1).toString(16).padStart(64, '0'),
  );
  await addParties(pool, [...ids, 'network'], 2);
  // Every third height is tied, every fifth row repeated.
  const heightOf = (n: number): bigint =>
    18_446_744_073_709_551_615n - BigInt(n) + BigInt(n % 3);
  await addCheckpoints(
    pool,
    Array.from({ length: 60 }, (_, index) => index + 1).map((n) => ({
      epoch: 2,
      at_block: heightOf(n),
      hash: `h${n}`,
      block_hash: `b${n}`,
      copies: n % 5 === 0 ? 3 : 1,
    })),
  );
  await claimLists(pool, 2);
  await pool.query('analyze');
});

/** Both lists were read to their ends. */
async function claimLists(of: typeof pool, epoch: number): Promise<void> {
  for (const list of ['parties', 'checkpoints'] as const)
    await addGeneration(of, {
      list,
      epoch,
      height: '7',
      time: '2023-05-01',
      isClaimed: true,
    });
}

describe('pages of the lists', () => {
  test.each([
    'pagination.newestFirst=true',
    'pagination.newestFirst=false',
    '',
  ])(
    'hold 1,000 rows and name the next page without a size: ?%s',
    async (query) => {
      const { edges, pageInfo } = await ask('parties', query);
      expect(edges).toHaveLength(1_000);
      expect(pageInfo).toMatchObject({
        hasNextPage: true,
        hasPreviousPage: false,
      });
    },
  );

  test.each([
    'pagination.first=5001',
    'pagination.first=2147483647',
    'pagination.last=5001',
  ])(
    'are refused above 5,000 rows in the words of the source: ?%s',
    async (query) => {
      for (const list of ['parties', 'checkpoints']) {
        const response = await fetch(`${api.url}/api/v2/${list}?${query}`);
        expect([response.status, await response.json()]).toEqual([
          400,
          {
            code: 3,
            message: 'InvalidArgument error',
            details: [
              {
                '@type': 'type.googleapis.com/vega.ErrorDetail',
                code: 10_028,
                message: 'invalid pagination',
                inner: 'pagination limit must be in range 0-5000',
              },
            ],
          },
        ]);
      }
    },
  );

  test('show every field that the source shows, the ones nobody knew too', async () => {
    const id = '1'.padStart(64, '0');
    const shown = { alias: 'Ann', metadata: [{ key: 'k', value: 'v' }] };
    await pool.query(
      'update mirror.parties set extra = $2 where party_id = $1',
      [id, { id: id.toUpperCase(), ...shown }],
    );
    await pool.query(
      `update mirror.parties set extra = $1 where party_id = 'network'`,
      [{ alias: 'the network' }],
    );
    await pool.query(
      'update mirror.checkpoints set extra = $1 where hash = $2',
      [{ signature: 's' }, 'h1'],
    );
    const oldest = await ask('parties', 'pagination.last=1');
    expect(oldest.edges[0]?.node).toEqual({ id, ...shown });
    expect(JSON.stringify(oldest.edges[0]?.node)).toMatch(/^\{"id"/);
    expect((await ask('parties', `partyId=${id}`)).edges[0]?.node).toEqual({
      id,
      ...shown,
    });
    expect((await ask('parties', 'pagination.first=1')).edges[0]?.node).toEqual(
      {
        id: 'network',
        alias: 'the network',
      },
    );
    const checkpoints = await ask('checkpoints', 'pagination.first=5000');
    const signed = checkpoints.edges.filter(({ node }) => 'signature' in node);
    expect(signed.map(({ node }) => node['hash'])).toEqual(['h1']);
    await pool.query('update mirror.parties set extra = null');
    await pool.query('update mirror.checkpoints set extra = null');
  });

  test.each(['03', 'network'])('look the network up by %s', async (id) => {
    const { edges } = await ask('parties', `partyId=${id}`);
    expect(edges.map(({ node }) => node)).toEqual([{ id: 'network' }]);
  });

  test('show the newest epoch only', async () => {
    const older = await fetch(`${api.url}/api/v2/parties?partyId=ff`);
    expect(older.status).toBe(404);
    const before = await ask(
      'parties',
      'pagination.first=2&pagination.newestFirst=false',
    );
    expect(before.edges[0]?.node).toEqual({ id: '1'.padStart(64, '0') });
  });

  test('refuse cursors of an earlier epoch with a reason', async () => {
    const old = new Cursors(
      await readCursorSecret(openRows(pool)),
      'parties',
    ).write('1', '');
    const response = await fetch(
      `${api.url}/api/v2/parties?pagination.after=${old}`,
    );
    expect(response.status).toBe(400);
    expect(await response.text()).toContain('earlier life of the chain');
  });

  test('list every repeated checkpoint once, in order, at every page size in both directions', async () => {
    const all = (await ask('checkpoints', 'pagination.first=5000')).edges.map(
      ({ node }) => JSON.stringify(node),
    );
    expect(all).toHaveLength(60 + 2 * 12);
    expect(new Set(all).size).toBe(60);
    expect(JSON.parse(all[0]!)).toMatchObject({
      atBlock: '18446744073709551615',
    });
    for (const size of [1, 2, 3, 4, 7, 83, 84]) {
      for (const newestFirst of [true, false]) {
        const seen: string[] = [];
        let after = '';
        for (let hasNext = true; hasNext;) {
          const page = await ask(
            'checkpoints',
            `pagination.first=${size}&pagination.newestFirst=${newestFirst}${after}`,
          );
          seen.push(...page.edges.map(({ node }) => JSON.stringify(node)));
          after = `&pagination.after=${page.pageInfo.endCursor}`;
          hasNext = page.pageInfo.hasNextPage;
        }
        expect(newestFirst ? seen : seen.toReversed()).toEqual(all);
      }
    }
  });

  test.each([
    ['parties', 'first'],
    ['parties', 'last'],
    ['checkpoints', 'first'],
    ['checkpoints', 'last'],
  ] as const)(
    'bring every row of %s, `network` included, to a client that follows the cursors with `%s`',
    async (list, way) => {
      await using small = await freshWarehouse();
      const ids = Array.from(
        { length: 11 },
        (_, index) => `party-${index + 1}`,
      );
      await addParties(small.pool, [...ids, 'network'], 1);
      await addCheckpoints(
        small.pool,
        Array.from({ length: 7 }, (_, index) => index + 1).map((n) => ({
          epoch: 1,
          at_block: 100 + Math.floor(n / 2),
          hash: `h${n}`,
          block_hash: `b${n}`,
          copies: 1 + (n % 3),
        })),
      );
      await claimLists(small.pool, 1);
      await using served = await startApi(small);
      const [turn, more, edge] =
        way === 'first'
          ? (['after', 'hasNextPage', 'endCursor'] as const)
          : (['before', 'hasPreviousPage', 'startCursor'] as const);
      const read = async (
        size: number,
        newestFirst: boolean,
      ): Promise<string[]> => {
        const pages: string[][] = [];
        for (let cursor = '', hasMore = true; hasMore;) {
          const from = cursor === '' ? '' : `&pagination.${turn}=${cursor}`;
          const query = `pagination.${way}=${size}&pagination.newestFirst=${newestFirst}${from}`;
          const answer = (await (
            await fetch(`${served.url}/api/v2/${list}?${query}`)
          ).json()) as Record<string, Answer>;
          const { edges, pageInfo } = answer[list] as Answer;
          expect(edges.length).toBeLessThanOrEqual(size);
          pages.push(edges.map(({ node }) => JSON.stringify(node)));
          cursor = pageInfo[edge];
          hasMore = pageInfo[more];
          expect(pages.length).toBeLessThan(40);
        }
        return (way === 'first' ? pages : pages.toReversed()).flat();
      };
      const newest = await read(100, true);
      expect(newest).toHaveLength(list === 'parties' ? 12 : 14);
      expect(newest.includes('{"id":"network"}')).toBe(list === 'parties');
      for (let size = 1; size <= newest.length + 1; size += 1) {
        expect([size, await read(size, true)]).toEqual([size, newest]);
        expect([size, await read(size, false)]).toEqual([
          size,
          newest.toReversed(),
        ]);
      }
    },
  );

  test('are read from an index alone at any depth', async () => {
    const plans = await Promise.all(
      [
        `select pos, party_id from mirror.parties where epoch = 2 and pos <= 99999999 and pos < 51200000 order by pos desc limit 1001`,
        `select pos, party_id from mirror.parties where epoch = 2 and pos > 51200000 order by pos asc limit 1001`,
        `select at_block, hash, block_hash, copies from mirror.checkpoints
         where epoch = 2 and at_block <= 18446744073709551615 and (at_block, hash, block_hash) >= (18446744073709551590::numeric, 'h', 'b')
         order by at_block asc, hash asc, block_hash asc limit 1002`,
      ].map((statement) => planOf(statement)),
    );
    for (const plan of plans) {
      expect(plan).toMatch(/Index (?:Only )?Scan/);
      expect(plan).not.toMatch(/Sort|Seq Scan|Filter/);
    }
  });
});

/** With sequential scans out of the question, as they are where the tables are big. */
async function planOf(statement: string): Promise<string> {
  const client = await pool.connect();
  try {
    await client.query('begin');
    await client.query('set local enable_seqscan = off');
    await client.query('set local enable_bitmapscan = off');
    const { rows } = await client.query<{ 'QUERY PLAN': string }>(
      `explain ${statement}`,
    );
    return rows.map((row) => row['QUERY PLAN']).join('\n');
  } finally {
    await client.query('rollback');
    client.release();
  }
}

describe('the state of the mirror in the headers of lists', () => {
  beforeAll(async () => {
    await pool.query('delete from mirror.generations');
  });

  test('is as of the newest block of the epoch that is served', async () => {
    await addGeneration(pool, {
      list: 'parties',
      height: '99',
      time: '2020-01-01',
    });
    const head = { height: '7', time: '2023-05-01 10:00:00.123456Z' };
    await addGeneration(pool, { list: 'checkpoints', epoch: 2, ...head });
    await using fresh = await startApi(warehouse);
    const { headers } = await fetch(`${fresh.url}/api/v2/checkpoints`);
    expect(headers.get('x-block-height')).toBe('7');
    expect(headers.get('x-block-timestamp')).toBe('1682935200123456000');
    const parties = await fetch(
      `${fresh.url}/api/v2/parties?pagination.first=1&mirror.partial=true`,
    );
    expect(parties.headers.get('x-block-height')).toBe('0');
    expect(parties.headers.get('x-mirror-whole')).toBe('false');
  });

  test('are an error of a list that was never read to its end, unless a part will do', async () => {
    await using fresh = await startApi(warehouse);
    const statusOf = async (path: string) => {
      const response = await fetch(`${fresh.url}/api/v2/${path}`);
      return [response.status, response.headers.get('x-mirror-whole')];
    };
    const known = '1'.padStart(64, '0');
    const unknown = 'e'.repeat(64);
    const paths = [
      'parties',
      'parties?mirror.partial=true',
      'checkpoints?pagination.first=1',
      `parties?partyId=${known}`,
      `parties?partyId=${unknown}`,
      `parties?partyId=${unknown}&mirror.partial=true`,
    ];
    expect(await Promise.all(paths.map(statusOf))).toEqual([
      [503, 'false'],
      [200, 'false'],
      [503, 'false'],
      [200, 'false'],
      [503, 'false'],
      [404, 'false'],
    ]);
    const refused = await fetch(`${fresh.url}/api/v2/parties`);
    expect(refused.headers.get('retry-after')).toBe('5');
    expect(await refused.json()).toMatchObject({
      code: 14,
      details: [{ code: 50_001 }],
    });
  });

  test('is complete once the list was read to its end, whatever an audit is reading', async () => {
    const parties = { list: 'parties', epoch: 2 } as const;
    await addGeneration(pool, {
      ...parties,
      height: '5',
      time: '2023-05-01',
      isClaimed: true,
    });
    await addGeneration(pool, {
      ...parties,
      kind: 'audit',
      height: '6',
      time: '2023-05-02',
    });
    await using fresh = await startApi(warehouse);
    const response = await fetch(
      `${fresh.url}/api/v2/parties?pagination.first=2`,
    );
    expect(response.headers.get('x-block-height')).toBe('5');
    expect(response.headers.get('x-mirror-whole')).toBe('true');
  });
});
