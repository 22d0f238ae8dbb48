/**
 * Faults of single pages: rows that a page lacks, repeats or shows elsewhere, and
 * envelopes that lie.
 */
import type { Behaviour, Call, Fault, When } from './fault.ts';
import { describePage, type Edge, type Page } from './page.ts';
import type { Item, ListName } from './rows.ts';

type PageFault = (page: Page, call: Call) => Page;

const ONCE: When = { times: 1, from: 1 };

/**
 * Edges other than the page's own, under the page's own envelope or under one that fits
 * them.
 */
const withEdges = (page: Page, edges: readonly Edge[]): Page => ({
  ...page,
  edges,
});
const refit = (page: Page, edges: readonly Edge[]): Page =>
  describePage(edges, page.hasNextPage, page.hasPreviousPage);
const middle = (page: Page): number => Math.floor(page.edges.length / 2);
const without = (edges: readonly Edge[], at: number): readonly Edge[] =>
  edges.filter((_, index) => index !== at);

function toForeign(page: Page, call: Call, start: number): Page {
  const rows = call.world.foreign[call.request.list];
  const edges = page.edges.map(({ cursor }, at): Edge => ({
    cursor,
    item: rows[(start + at) % rows.length] as Item,
  }));
  return withEdges(
    page,
    call.request.newestFirst
      ? edges
          .toReversed()
          .map(({ item }, at) => ({ item, cursor: edges[at]?.cursor ?? '' }))
      : edges,
  );
}

function doubleAt(page: Page, at: number): Page {
  return refit(page, [...page.edges.slice(0, at + 1), ...page.edges.slice(at)]);
}

function swap(page: Page, at: number): Page {
  const edges = [...page.edges];
  const a = edges[at];
  const b = edges[at + 1];
  if (a === undefined || b === undefined) return page;
  edges.splice(at, 2, b, a);
  return refit(page, edges);
}

/** The first page of the list in the order that was asked for. */
function firstPage(call: Call): Page {
  const { after: _, before: __, ...rest } = call.request;
  return call.world.honestPage(rest);
}

function lastPage(call: Call): Page {
  const newest = call.world.honestPage({
    list: call.request.list,
    newestFirst: true,
    first: 10,
  });
  return describePage(newest.edges.toReversed(), true, true);
}

/** Rows of another network behind the last row, under cursors that nobody knows. */
function goOn(page: Page, call: Call): Page {
  if (page.hasNextPage) return page;
  const rows = call.world.foreign[call.request.list].slice(-3);
  const edges = rows.map((item): Edge => ({
    item,
    cursor: `behind-${item.serial}`,
  }));
  return refit(page, [...page.edges, ...edges]);
}

/** The first `length` pages, over and over. */
function repeatEvery(length: number): () => Behaviour {
  return () => {
    const shown: Record<ListName, Page[]> = { parties: [], checkpoints: [] };
    return {
      page: (page, call) => {
        const pages = shown[call.request.list];
        if (pages.length === length)
          return { ...(pages[call.n % length] as Page), hasNextPage: true };
        pages.push(page);
        return page;
      },
    };
  };
}

function declare(
  name: string,
  meaning: string,
  betrayedBy: string,
  when: When,
  page: PageFault,
  rest: Partial<Fault> = {},
): Fault {
  const make = (): Behaviour => ({ page });
  return {
    name,
    meaning,
    betrayedBy,
    when,
    make,
    shownBy: 'sync',
    since: 'first-sync',
    keepsOrder: true,
    heals: true,
    neverComplete: false,
    ...rest,
  };
}

const OLDEST: When = { order: 'oldest-first' };
const NEWEST: When = { order: 'newest-first' };
const PROMISING: When = { order: 'oldest-first', page: 'promising' };

export const FAULTS_IN_PAGES: readonly Fault[] = [
  declare(
    'drops-a-row-in-every-page',
    'the middle row of each page that promises more is left out',
    'asked with another size, other rows are missing',
    PROMISING,
    (page) => withEdges(page, without(page.edges, middle(page))),
  ),
  declare(
    'drops-a-row-now-and-then',
    'every third page that promises more lacks its middle row',
    'the page is shorter than others and promises more',
    { ...PROMISING, every: 3 },
    (page) => withEdges(page, without(page.edges, middle(page))),
  ),
  declare(
    'drops-a-row-once',
    'one page that promises more lacks its middle row',
    'the page is shorter than others and promises more',
    { ...PROMISING, ...ONCE },
    (page) => withEdges(page, without(page.edges, middle(page))),
  ),
  declare(
    'drops-a-row-of-the-first-page',
    'the very first page lacks a row',
    'the page is shorter than those behind it, or the other order has the row',
    { ...OLDEST, page: 'first', times: 1 },
    (page) => withEdges(page, without(page.edges, middle(page))),
  ),
  declare(
    'drops-a-row-newest-first',
    'newest-first pages lack a row',
    'in a list of one page, the orders differ; else nothing is missing',
    NEWEST,
    (page) => withEdges(page, without(page.edges, middle(page))),
  ),
  declare(
    'drops-the-last-row',
    'each promising page lacks its last row; endCursor is still that row’s',
    'endCursor is no edge’s; the next page does not begin with what is held',
    PROMISING,
    (page) => withEdges(page, page.edges.slice(0, -1)),
  ),
  declare(
    'drops-the-first-row-behind-a-cursor',
    'each page behind a cursor begins one row late',
    'the overlap is missing',
    { ...OLDEST, page: 'behind-a-cursor' },
    (page) => refit(page, page.edges.slice(1)),
  ),
  declare(
    'drops-half-a-page-once',
    'one promising page shows its first half; endCursor leads behind the second',
    'endCursor is no edge’s; the page is shorter than others',
    { ...PROMISING, ...ONCE },
    (page) => withEdges(page, page.edges.slice(0, middle(page))),
  ),
  declare(
    'doubles-a-row-once',
    'one page shows its middle row twice',
    'a row comes twice',
    { ...OLDEST, ...ONCE },
    (page) => doubleAt(page, middle(page)),
  ),
  declare(
    'doubles-every-row',
    'each row of each page comes twice',
    'rows come twice',
    {},
    (page) =>
      refit(
        page,
        page.edges.flatMap((edge) => [edge, edge]),
      ),
  ),
  declare(
    'repeats-a-row-in-the-newest-page',
    'the newest-first page shows its first row twice',
    'a row comes twice',
    { ...NEWEST, times: 2 },
    (page) => doubleAt(page, 0),
  ),
  declare(
    'repeats-a-row-of-an-earlier-page',
    'one page shows a row of the first page once more in its middle',
    'a row comes twice',
    { ...OLDEST, page: 'behind-a-cursor', ...ONCE },
    (page, call) => {
      const early = firstPage(call).edges.at(0);
      if (early === undefined) return page;
      return withEdges(page, [
        ...page.edges.slice(0, middle(page)),
        early,
        ...page.edges.slice(middle(page)),
      ]);
    },
  ),
  declare(
    'swaps-neighbours',
    'two neighbours of each page change places',
    'checkpoints: heights fall; parties: nothing, where no border is touched',
    OLDEST,
    (page) => swap(page, middle(page)),
    { keepsOrder: false },
  ),
  declare(
    'foreign-first-page-once',
    'the first page oldest first is once that of another network',
    'the next page does not begin with what is held; in a list of one page the orders differ',
    { ...OLDEST, page: 'first', times: 1 },
    (page, call) => toForeign(page, call, 40),
  ),
  declare(
    'foreign-page-once',
    'one page behind a cursor is that of another network',
    'the overlap is missing',
    { ...OLDEST, page: 'behind-a-cursor', times: 1, from: 1 },
    (page, call) => toForeign(page, call, 80),
  ),
  declare(
    'foreign-newest-page-once',
    'the newest-first page is once that of another network',
    'its rows are not held and are not reached',
    { ...NEWEST, times: 1 },
    (page, call) => toForeign(page, call, 3),
  ),
  declare(
    'foreign-newest-page-always',
    'each newest-first page is that of another network',
    'its rows are not held and are not reached',
    NEWEST,
    (page, call) => toForeign(page, call, 3),
    { neverComplete: true },
  ),
  declare(
    'foreign-page-always',
    'each page has the rows of another network under cursors of this one',
    'nothing that is held is shown again',
    {},
    (page, call) => toForeign(page, call, 5),
    { since: 'held', neverComplete: true },
  ),
  declare(
    'foreign-row-in-a-page',
    'the middle row of one page is another network’s',
    'parties and heights alike: nothing, where no border is touched',
    { ...PROMISING, ...ONCE },
    (page, call) => {
      const at = middle(page);
      const foreign = call.world.foreign[call.request.list][at];
      const edges = page.edges.map((edge, index) =>
        index === at && foreign !== undefined
          ? { ...edge, item: { ...foreign, age: edge.item.age } }
          : edge,
      );
      return withEdges(page, edges);
    },
    { shownBy: 'audit', keepsOrder: false },
  ),
  declare(
    'empty-page-that-promises-more',
    'one page behind a cursor is empty and promises more',
    'an empty page promises more',
    { ...OLDEST, page: 'behind-a-cursor', times: 2 },
    (page) => ({
      ...page,
      edges: [],
      startCursor: '',
      endCursor: '',
      hasNextPage: true,
    }),
  ),
  declare(
    'empty-pages-for-ever',
    'every page behind a cursor is empty and promises more',
    'an empty page promises more',
    { page: 'behind-a-cursor' },
    (page) => ({ ...page, edges: [], hasNextPage: true }),
    { neverComplete: true },
  ),
  declare(
    'ends-early',
    'oldest first, every page behind a cursor is empty and the last',
    'the newest-first page has rows that are not reached',
    { ...OLDEST, page: 'behind-a-cursor' },
    () => describePage([], false, true),
    { neverComplete: true },
  ),
  declare(
    'hides-the-next-page-once',
    'one page that has a next one says that it is the last',
    'the newest-first page has rows that are not held',
    { ...PROMISING, times: 1 },
    (page) => ({ ...page, hasNextPage: false }),
  ),
  declare(
    'hides-every-next-page',
    'no page says that there is a next one',
    'the newest-first page has rows that are not held',
    {},
    (page) => ({ ...page, hasNextPage: false }),
  ),
  declare(
    'after-is-ignored',
    'every page is the first one',
    'the overlap is missing, rows repeat',
    { page: 'behind-a-cursor' },
    (_, call) => ({ ...firstPage(call), hasNextPage: true }),
    { neverComplete: true },
  ),
  declare(
    'cycle-of-one',
    'from the second page on, each page is the same',
    'the cursor and the rows repeat',
    OLDEST,
    (page) => page,
    { make: repeatEvery(1) },
  ),
  declare(
    'cycle-of-two',
    'two pages alternate',
    'cursors and rows repeat',
    OLDEST,
    (page) => page,
    {
      make: repeatEvery(2),
    },
  ),
  declare(
    'cycle-of-five',
    'five pages come round and round',
    'cursors and rows repeat',
    OLDEST,
    (page) => page,
    { make: repeatEvery(5) },
  ),
  declare(
    'last-page-for-ever',
    'behind its last row the list shows its last page again, and promises more',
    'rows repeat',
    { ...OLDEST, page: 'behind-a-cursor' },
    (page, call) => (page.edges.length > 1 ? page : lastPage(call)),
  ),
  declare(
    'newest-page-oldest-first',
    'the newest-first page comes oldest first',
    'it shows no end: the source does not keep the order',
    NEWEST,
    (_, call) => call.world.honestPage({ ...call.request, newestFirst: false }),
  ),
  declare(
    'empty-newest-page',
    'the newest-first page is empty',
    'the orders contradict each other',
    NEWEST,
    () => describePage([], false, false),
    { neverComplete: true },
  ),
  declare(
    'envelope-of-another-page',
    'startCursor and endCursor are those of other rows',
    'the envelope contradicts its edges',
    { ...OLDEST, page: 'promising' },
    (page) => ({
      ...page,
      startCursor: page.edges.at(1)?.cursor ?? '',
      endCursor: page.edges.at(0)?.cursor ?? '',
    }),
  ),
  declare(
    'rows-behind-the-end',
    'oldest first, three rows of another network follow the newest one',
    'the newest-first page does not have them',
    OLDEST,
    goOn,
    { neverComplete: true },
  ),
  declare(
    'more-rows-than-asked',
    'one page has three rows more than were asked for, of another network',
    'the page is longer than asked for',
    { ...PROMISING, ...ONCE },
    (page, call) =>
      withEdges(page, [
        ...toForeign(page, call, 60).edges.slice(0, 3),
        ...page.edges,
      ]),
  ),
];
