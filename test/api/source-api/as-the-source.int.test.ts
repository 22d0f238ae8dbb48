/**
 * A mirror and the network that it mirrors, asked the same: page by page, and error by
 * error.
 */
import { get, type IncomingMessage } from 'node:http';
import { afterAll, describe, expect, test } from 'vitest';
import { startSandbox } from '../../support/sandbox.ts';
import { fillLists } from './fill.ts';
import { freshWarehouse, startApi } from '../mirror.ts';

interface ListPage {
  readonly edges: readonly {
    readonly node: Readonly<Record<string, string>>;
    readonly cursor: string;
  }[];
  readonly pageInfo: {
    readonly hasNextPage: boolean;
    readonly hasPreviousPage: boolean;
    readonly startCursor: string;
    readonly endCursor: string;
  };
}

const LISTS = ['parties', 'checkpoints'] as const;
type List = (typeof LISTS)[number];

// Small enough for every page size; without ties, whose order the service leaves open.
const HOUR_MS = 3_600_000;
const small = await startSandbox({
  parties: 21,
  historyMs: 2 * HOUR_MS,
  tieRows: [],
  rateLimit: 'none',
});
const warehouse = await freshWarehouse();
await fillLists(warehouse.pool, small);
const mirror = await startApi(warehouse);
afterAll(() =>
  Promise.all([
    small.stop(),
    mirror[Symbol.asyncDispose](),
    warehouse[Symbol.asyncDispose](),
  ]),
);

async function page(url: string, list: List, query: string): Promise<ListPage> {
  const response = await fetch(`${url}/api/v2/${list}?${query}`);
  if (!response.ok) throw new Error(`${query} answered ${response.status}`);
  return ((await response.json()) as Record<List, ListPage>)[list];
}

function shown({ edges, pageInfo }: ListPage): unknown {
  const { hasNextPage, hasPreviousPage, startCursor, endCursor } = pageInfo;
  expect(startCursor).toBe(edges[0]?.cursor ?? '');
  expect(endCursor).toBe(edges.at(-1)?.cursor ?? '');
  return { nodes: edges.map(({ node }) => node), hasNextPage, hasPreviousPage };
}

/**
 * The service ends a list of parties without `network` where that is not on the first
 * page, and sends nothing behind its cursor. The mirror goes on there: only what the
 * service shows is compared.
 */
function endsAtNetwork(
  ours: ListPage,
  theirs: ListPage,
  isForward: boolean,
): boolean {
  if (theirs.edges.length === 0) return ours.edges.length > 0;
  const own = ours.edges
    .filter(({ node }) => node['id'] !== 'network')
    .map(({ node }) => node);
  const isLeftOut = !theirs.edges.some(({ node }) => node['id'] === 'network');
  const goesOn = isForward
    ? ours.pageInfo.hasNextPage
    : ours.pageInfo.hasPreviousPage;
  if (!isLeftOut || (!goesOn && own.length === ours.edges.length)) return false;
  expect(own).toEqual(theirs.edges.map(({ node }) => node));
  return true;
}

/**
 * Follows the cursors of both until the list ends, and one page further where a cursor is
 * left.
 */
async function compareWalk(
  urls: readonly [string, string],
  list: List,
  size: number,
  way: string,
): Promise<number> {
  const isForward = !way.startsWith('last');
  const order = way.includes('oldest') ? '&pagination.newestFirst=false' : '';
  let cursors = ['', ''];
  for (let pages = 1; ; pages += 1) {
    const [ours, theirs] = await Promise.all(
      urls.map((url, side) => {
        const cursor = encodeURIComponent(cursors[side] ?? '');
        const from =
          cursor === ''
            ? ''
            : `&pagination.${isForward ? 'after' : 'before'}=${cursor}`;
        return page(
          url,
          list,
          `pagination.${isForward ? 'first' : 'last'}=${size}${order}${from}`,
        );
      }),
    );
    if (ours === undefined || theirs === undefined)
      throw new Error('one of them gave no page');
    const where = { way, size, pages };
    const hasMore = isForward
      ? theirs.pageInfo.hasNextPage
      : theirs.pageInfo.hasPreviousPage;
    if (
      list === 'parties' &&
      !hasMore &&
      endsAtNetwork(ours, theirs, isForward)
    )
      return pages;
    expect({ where, page: shown(ours) }).toEqual({
      where,
      page: shown(theirs),
    });
    cursors = [ours, theirs].map(({ pageInfo }) =>
      isForward ? pageInfo.endCursor : pageInfo.startCursor,
    );
    if (!hasMore && cursors[0] !== '' && pages > 1) return pages;
    if (cursors[0] === '') return pages;
  }
}

const WAYS = [
  'first, newest first',
  'first, oldest first',
  'last, newest first',
  'last, oldest first',
];

function sizes(from: number, to: number): readonly number[] {
  return Array.from({ length: to - from + 1 }, (_, index) => from + index);
}

describe.each(LISTS)('the list of %s beside the source', (list) => {
  test.each(WAYS)(
    'has the same pages at every size, read by %s',
    async (way) => {
      const pages = new Map<number, number>();
      for (const size of [...sizes(1, 26), 5_000]) {
        pages.set(
          size,
          await compareWalk([mirror.url, small.url], list, size, way),
        );
      }
      // That something was compared: more than twenty rows, two a page.
      expect(pages.get(2)).toBeGreaterThan(10);
    },
  );

  test.each([
    '',
    'pagination.newestFirst=false',
    'pagination.newest_first=true',
    'pagination.first=3&pagination.last=5',
    'pagination.first=3&pagination.before=nonsense',
    'pagination.last=3&pagination.after=nonsense',
    'pagination.first=%2B3',
    'pagination.newestFirst=F',
    'pagination.firts=3',
    'unknown[a]=b&x.y=z',
  ])('answers ?%s alike', async (query) => {
    expect(shown(await page(mirror.url, list, query))).toEqual(
      shown(await page(small.url, list, query)),
    );
  });
});

// A few pages at the sizes above those, each of which ends once on the last row, before
// and behind it.
const MEDIUM_ROWS = 121;
const medium = await startSandbox({
  parties: MEDIUM_ROWS - 1,
  historyMs: 2 * HOUR_MS,
  checkpointIntervalMs: 60_000,
  tieRows: [],
  rateLimit: 'none',
  seed: 'medium',
});
const mediumWarehouse = await freshWarehouse();
await fillLists(mediumWarehouse.pool, medium);
const mediumMirror = await startApi(mediumWarehouse);
afterAll(() =>
  Promise.all([
    medium.stop(),
    mediumMirror[Symbol.asyncDispose](),
    mediumWarehouse[Symbol.asyncDispose](),
  ]),
);

describe.each(LISTS)('a list of 120 %s beside the source', (list) => {
  test.each(WAYS)(
    'has the same pages at every size, read by %s',
    async (way) => {
      const pages: number[] = [];
      for (const size of sizes(27, MEDIUM_ROWS + 2)) {
        pages.push(
          await compareWalk([mediumMirror.url, medium.url], list, size, way),
        );
      }
      // That something was compared: pages were turned.
      expect(Math.min(...pages.slice(0, 80))).toBeGreaterThan(1);
    },
  );
});

// More rows than the largest page, so that every size turns a page.
const large = await startSandbox({
  parties: 5_100,
  entriesMean: 1,
  historyMs: 2 * HOUR_MS,
  checkpointIntervalMs: 1_400,
  tieRows: [],
  rateLimit: 'none',
  seed: 'large',
});
const largeWarehouse = await freshWarehouse();
await fillLists(largeWarehouse.pool, large);
const largeMirror = await startApi(largeWarehouse);
afterAll(() =>
  Promise.all([
    large.stop(),
    largeMirror[Symbol.asyncDispose](),
    largeWarehouse[Symbol.asyncDispose](),
  ]),
);
const LARGE_SIZES = [500, 999, 1_000, 1_001, 2_549, 2_550, 2_551, 4_999, 5_000];

describe.each(LISTS)('a list of %s longer than the largest page', (list) => {
  test.each(WAYS)(
    'has the same pages at large sizes, read by %s',
    async (way) => {
      for (const size of LARGE_SIZES) {
        const pages = await compareWalk(
          [largeMirror.url, large.url],
          list,
          size,
          way,
        );
        expect(pages).toBeGreaterThan(1);
      }
    },
  );
});

describe('the lookup of one party', () => {
  test.each(['network', 'own', 'own in upper case'])(
    'answers as the source does for an id that is %s',
    async (which) => {
      const [own] = [...small.truth.parties()].map(({ id }) => id);
      const id = {
        network: 'network',
        own,
        'own in upper case': own?.toUpperCase(),
      }[which];
      const query = `partyId=${id}&pagination.first=7`;
      const ours = await page(mirror.url, 'parties', query);
      const theirs = await page(small.url, 'parties', query);
      expect(shown(ours)).toEqual(shown(theirs));
      expect(ours.edges).toHaveLength(1);
    },
  );
});

interface Answer {
  readonly status: number | undefined;
  readonly contentTypes: readonly string[];
  readonly namesBlock: boolean;
  readonly body: unknown;
}

/** Headers as they came: fetch would join what came twice. */
async function answerOf(
  url: string,
  path: string,
  method = 'GET',
): Promise<Answer> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    get(
      `${url}${path}`,
      { method, headers: { accept: 'application/json' } },
      resolve,
    ).on('error', reject);
  });
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) text += String(chunk);
  return {
    status: response.statusCode,
    contentTypes: response.rawHeaders.filter(
      (_, at) => response.rawHeaders[at - 1]?.toLowerCase() === 'content-type',
    ),
    namesBlock: response.headers['x-block-height'] !== undefined,
    body: JSON.parse(text) as unknown,
  };
}

const EXPORT = '/api/v2/ledgerentry/export';
const PARTY = 'ab'.repeat(32);

describe('an error of the read API', () => {
  test.each([
    '/api/v2/parties?pagination.first=abc',
    '/api/v2/parties?pagination.first=',
    '/api/v2/parties?pagination.first=2147483648',
    '/api/v2/parties?pagination.first=1.5',
    '/api/v2/parties?pagination.first=1&pagination.first=2',
    '/api/v2/parties?pagination[first]=1',
    '/api/v2/parties?pagination=1',
    '/api/v2/parties?pagination.newestFirst=yes',
    '/api/v2/parties?pagination.first=0',
    '/api/v2/parties?pagination.last=-1',
    '/api/v2/parties?pagination.after=a&pagination.before=b',
    '/api/v2/parties?pagination.after=',
    '/api/v2/checkpoints?pagination.before=',
    '/api/v2/checkpoints?pagination.last=x',
    '/api/v2/parties?a=%zz',
    '/api/v2/parties?a=1;b=2',
    '/api/v2/parties?partyId=nonsense',
    '/api/v2/parties?partyId=abc',
    '/api/v2/parties?partyId=abcd',
    '/api/v2/parties?partyId=NETWORK',
    `/api/v2/parties?partyId=${PARTY}`,
    '/api/v2/parties/',
    '/api/v2/nothing',
    EXPORT,
    `${EXPORT}?partyId=network`,
    `${EXPORT}?partyId=${PARTY}&assetId=`,
    `${EXPORT}?party_id=${PARTY}&asset_id=xyz`,
    `${EXPORT}?partyId=${PARTY}&dateRange.startTimestamp=1.5e9`,
    `${EXPORT}?partyId=${PARTY}&dateRange.end_timestamp=9223372036854775808`,
    `${EXPORT}/`,
  ])('has the status and body of the source: %s', async (path) => {
    expect(await answerOf(mirror.url, path)).toEqual(
      await answerOf(small.url, path),
    );
  });

  test.each(['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])(
    'is that of the source for the method %s',
    async (method) => {
      const ours = await answerOf(mirror.url, '/api/v2/parties', method);
      expect(ours).toEqual(
        await answerOf(small.url, '/api/v2/parties', method),
      );
      expect(ours.status).toBe(501);
    },
  );

  test('is a 400 for every cursor that the mirror has not made', async () => {
    const own = (await page(mirror.url, 'parties', 'pagination.first=3'))
      .pageInfo.endCursor;
    const ofTheSource = (await page(small.url, 'parties', 'pagination.first=3'))
      .pageInfo.endCursor;
    const ofTheOtherList = (
      await page(mirror.url, 'checkpoints', 'pagination.first=3')
    ).pageInfo.endCursor;
    const changed = own.replace(/^./, (first) => (first === 'A' ? 'B' : 'A'));
    for (const cursor of [
      changed,
      `${own}A`,
      own.slice(0, -1),
      ofTheSource,
      ofTheOtherList,
      'e30=',
      '.',
      'é.é',
      'x'.repeat(4_000),
    ]) {
      const path = `/api/v2/parties?pagination.first=3&pagination.after=${encodeURIComponent(cursor)}`;
      expect(await answerOf(mirror.url, path)).toMatchObject({
        status: 400,
        body: {
          code: 3,
          details: [{ code: 10_028, message: 'invalid pagination' }],
        },
      });
    }
  });

  test('names the block of the mirror', async () => {
    const [ours, theirs] = await Promise.all(
      [mirror.url, small.url].map(
        async (url) => (await fetch(`${url}/api/v2/checkpoints`)).headers,
      ),
    );
    for (const name of ['x-block-height', 'x-block-timestamp'])
      expect(ours?.get(name)).toBe(theirs?.get(name));
  });

  test('indents where it is asked to', async () => {
    const [ours, theirs] = await Promise.all(
      [mirror.url, small.url].map(async (url) =>
        (await fetch(`${url}/api/v2/parties?pretty&partyId=network`)).text(),
      ),
    );
    const withoutCursors = (text: string | undefined): string | undefined =>
      text?.replaceAll(/[Cc]ursor": "[^"]*"/g, '');
    expect(withoutCursors(ours)).toBe(withoutCursors(theirs));
  });
});
