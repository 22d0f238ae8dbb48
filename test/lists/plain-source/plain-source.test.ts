/**
 * The plain source itself: that it is what its tables say. No product code takes part.
 */
import { afterEach, describe, expect, test } from 'vitest';
import { PLAIN, type Dialect } from './dialect.ts';
import { HONEST_DIALECTS } from './honest-dialects.ts';
import { ask, readNewest, readOldestFirst } from './naive-reader.ts';
import type { HonestDialect } from './honest-source.ts';
import { checkpointKeys, describeJudgement, judgeList } from './oracle.ts';
import { LISTS, RowMaker, type ListName, type Rows } from './rows.ts';
import { startPlainSource, type PlainSource } from './start.ts';

const open: PlainSource[] = [];

async function start(
  dialect: Partial<Dialect>,
  rows: Rows,
): Promise<PlainSource> {
  const source = await startPlainSource({
    dialect: { ...PLAIN, ...dialect },
    ...rows,
  });
  open.push(source);
  return source;
}

afterEach(async () => {
  await Promise.all(open.splice(0).map((source) => source.close()));
});

describe('the honest dialects', () => {
  test('are many, and each has a name of its own', () => {
    const names = HONEST_DIALECTS.map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    expect(names.length).toBeGreaterThanOrEqual(30);
    expect(
      HONEST_DIALECTS.filter(({ isFirm }) => isFirm).length,
    ).toBeGreaterThanOrEqual(20);
  });

  test.each(HONEST_DIALECTS.filter(isReadable))(
    '$name shows every row in its order to a reader of the paging rules',
    async (honest) => {
      const source = await start(...split(honest.make()));
      for (const list of servedLists(honest)) {
        expect(await judge(source, list, honest)).toBe('nothing is wrong');
      }
    },
  );

  test.each(HONEST_DIALECTS.filter((honest) => !isReadable(honest)))(
    '$name does not show all of them, and says why: $unreadable',
    async (honest) => {
      const source = await start(...split(honest.make()));
      expect(await judge(source, 'parties', honest)).toMatch(
        /missing|misplaced/,
      );
    },
  );

  test.each(
    HONEST_DIALECTS.filter(
      ({ name }) => !/^(always.*|clamp-1|uneven-pages|.*twins)$/.test(name),
    ),
  )(
    '$name shows the newest rows first where no cursor is sent',
    async (honest) => {
      const source = await start(...split(honest.make()));
      for (const list of servedLists(honest)) {
        const size = honest.make().dialect.most?.rows ?? honest.pageSize;
        const shown = await readNewest(source.url, list, size);
        const { rows } = source.snapshot(list);
        const placeless = rows.filter(({ age }) => age === null);
        const newest = rows.filter(({ age }) => age !== null).toReversed();
        const ages = new Map(rows.map(({ key, age }) => [key, age]));
        const expected = [...placeless, ...newest]
          .slice(0, size)
          .map(({ age }) => age);
        expect(shown.map((key) => ages.get(key))).toEqual(expected);
      }
    },
  );
});

function isReadable(honest: HonestDialect): boolean {
  return honest.unreadable === undefined;
}

function servedLists(honest: HonestDialect): ListName[] {
  return LISTS.filter((list) => honest.make().dialect.notServed?.list !== list);
}

async function judge(
  source: PlainSource,
  list: ListName,
  honest: HonestDialect,
): Promise<string> {
  const atStart = source.snapshot(list);
  const held = await readOldestFirst(source.url, list, honest.pageSize);
  return describeJudgement(
    judgeList({ held, atStart, atEnd: source.snapshot(list) }),
  );
}

function split({
  dialect,
  parties,
  checkpoints,
}: Rows & { dialect: Dialect }): [Dialect, Rows] {
  return [dialect, { parties, checkpoints }];
}

describe('a plain source', () => {
  const rows = new RowMaker().make(7, 7);
  const page = async (
    source: PlainSource,
    query: Record<string, string>,
  ): Promise<string[]> =>
    (await ask(source.url, 'parties', query)).edges.map(
      ({ node }) => node['id'] ?? '',
    );
  const ids = rows.parties.map(({ id }) => id);

  test('pages backwards before a cursor, and ends lists with `last` alone', async () => {
    const source = await start({}, rows);
    const head = await ask(source.url, 'parties', {
      'pagination.first': '5',
      'pagination.newestFirst': 'false',
    });
    const before = head.edges[4]?.cursor ?? '';
    const query = { 'pagination.last': '2', 'pagination.newestFirst': 'false' };
    expect(
      await page(source, { ...query, 'pagination.before': before }),
    ).toEqual(ids.slice(2, 4));
    expect(await page(source, query)).toEqual(ids.slice(5));
  });

  test('shows the rest of a shared cursor less one, or nothing of it', async () => {
    const triples = new RowMaker({ partiesAtOnce: 3 }).make(9, 0);
    const query = {
      'pagination.first': '4',
      'pagination.newestFirst': 'false',
    };
    const second = async (cursor: Dialect['cursor']): Promise<string[]> => {
      const source = await start({ cursor }, triples);
      const { endCursor } = await ask(source.url, 'parties', query);
      return page(source, { ...query, 'pagination.after': endCursor ?? '' });
    };
    const all = triples.parties.map(({ id }) => id);
    expect(await second('age-inclusive')).toEqual(all.slice(4, 8));
    expect(await second('age-exclusive')).toEqual(all.slice(6, 9));
    expect(await second('row')).toEqual(all.slice(4, 8));
  });

  test('writes other random cursors each time, and takes both', async () => {
    const source = await start({ cursor: 'fresh' }, rows);
    const query = {
      'pagination.first': '2',
      'pagination.newestFirst': 'false',
    };
    const cursors = [
      await ask(source.url, 'parties', query),
      await ask(source.url, 'parties', query),
    ];
    expect(cursors[0]?.endCursor).not.toBe(cursors[1]?.endCursor);
    for (const { endCursor } of cursors) {
      expect(
        await page(source, { ...query, 'pagination.after': endCursor ?? '' }),
      ).toEqual(ids.slice(2, 4));
    }
  });

  test('refuses what breaks the rules, and cursors that are not its own', async () => {
    const source = await start({}, rows);
    const queries = [
      { 'pagination.first': '0' },
      { 'pagination.after': '' },
      { 'pagination.after': 'forged' },
      { 'pagination.newestFirst': 'perhaps' },
    ];
    for (const query of queries)
      expect((await ask(source.url, 'parties', query)).status).toBe(400);
    expect(source.requests.map(({ status }) => status)).toEqual([
      400, 400, 400, 400,
    ]);
  });

  test('clamps, refuses, and leaves nothing to the last height', async () => {
    const clamped = await start({ most: { rows: 3, answer: 'clamp' } }, rows);
    expect(await page(clamped, { 'pagination.first': '5' })).toEqual(
      ids.toReversed().slice(0, 3),
    );
    const refusing = await start({ most: { rows: 3, answer: 422 } }, rows);
    expect(
      (await ask(refusing.url, 'parties', { 'pagination.first': '4' })).status,
    ).toBe(422);
    const { checkpoints } = new RowMaker({
      firstHeight: 2n ** 64n - 2n,
      heightStep: 1n,
    }).make(0, 2);
    const high = await start(
      { atBlock: 'number' },
      { parties: [], checkpoints },
    );
    expect((await ask(high.url, 'checkpoints', {})).body).toContain(
      '"atBlock":18446744073709551615}',
    );
  });

  test.each([
    [
      'null-cursors',
      '{"parties":{"edges":[],"pageInfo":{"startCursor":null,"endCursor":null,',
    ],
    ['no-page-info', '{"parties":{"edges":[]}}'],
    ['null-edges', '{"parties":{"edges":null,"pageInfo":{"startCursor":"",'],
    ['no-edges', '{"parties":{"pageInfo":{"startCursor":"",'],
    ['null-page', '{"parties":null}'],
  ] as const)('writes an empty page as %s', async (emptyPage, begin) => {
    const source = await start({ emptyPage }, { parties: [], checkpoints: [] });
    expect((await ask(source.url, 'parties', {})).body.startsWith(begin)).toBe(
      true,
    );
  });

  test('leaves out what is false, empty or zero as proto3 JSON does', async () => {
    const { checkpoints } = new RowMaker({ firstHeight: 0n }).make(0, 1);
    const source = await start(
      { json: 'proto3' },
      { parties: [], checkpoints },
    );
    const { body } = await ask(source.url, 'checkpoints', {});
    expect(body).not.toMatch(/atBlock|hasNextPage|hasPreviousPage/);
    expect((await ask(source.url, 'parties', {})).body).toBe(
      '{"parties":{"pageInfo":{}}}',
    );
  });

  test('looks a party up as its dialect does', async () => {
    const statuses: number[] = [];
    const counts: number[] = [];
    for (const partyId of [
      'served',
      'empty',
      'ignored',
      400,
      404,
      500,
    ] as const) {
      const source = await start({ partyId }, rows);
      const answer = await ask(source.url, 'parties', {
        partyId: ids[2] ?? '',
      });
      statuses.push(answer.status);
      counts.push(answer.edges.length);
    }
    expect(statuses).toEqual([200, 200, 200, 400, 404, 500]);
    expect(counts).toEqual([1, 0, 7, 0, 0, 0]);
  });

  test('grows at its end where rows are appended', async () => {
    const maker = new RowMaker();
    const source = await start({ cursor: 'order-offset' }, maker.make(5, 5));
    source.append(maker.make(40, 40));
    expect(source.truth.parties).toHaveLength(45);
    expect(await readOldestFirst(source.url, 'parties', 20)).toEqual(
      source.truth.parties,
    );
    const heights = checkpointKeys(source.truth.checkpoints);
    expect(await readOldestFirst(source.url, 'checkpoints', 20)).toEqual(
      heights,
    );
  });
});
