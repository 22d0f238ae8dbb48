/**
 * Faults of whole lists: rows that go, come back, change places or belong to another
 * network.
 */
import type { Behaviour, Call, Fault, Surroundings, When } from './fault.ts';
import { describePage, type Edge } from './page.ts';
import { Random } from './random.ts';
import type { Item, ListName } from './rows.ts';

type View = NonNullable<Behaviour['view']>;

const share = (items: readonly Item[], part: number): number =>
  Math.max(1, Math.floor(items.length * part));

function declare(
  name: string,
  meaning: string,
  betrayedBy: string,
  behaviour: () => Behaviour,
  rest: Partial<Fault> = {},
): Fault {
  return {
    name,
    meaning,
    betrayedBy,
    make: behaviour,
    when: {},
    shownBy: 'sync',
    since: 'held',
    keepsOrder: true,
    heals: true,
    neverComplete: false,
    ...rest,
  };
}

const show = (view: View) => (): Behaviour => ({ view });

/** A row that nobody has seen, of the same age as another. */
function rowLike(
  world: Surroundings,
  list: ListName,
  beside: Item,
  n: number,
): Omit<Item, 'serial'> {
  const random = new Random(
    world.dialect.seed + n * 31 + (beside.serial % 1000),
  );
  if (list === 'parties') {
    const id = random.hex(64);
    return { key: id, age: beside.age, fields: { id } };
  }
  const fields = {
    hash: random.hex(64),
    blockHash: random.hex(64),
    atBlock: beside.fields['atBlock'] ?? '0',
  };
  return {
    key: `${fields.atBlock}/${fields.hash}/${fields.blockHash}`,
    age: beside.age,
    fields,
  };
}

/** Inserts a row beside the one at this share of the list. */
function insertAt(part: number) {
  return (call: Call): void => {
    const { list } = call.request;
    const items = call.world.all(list).filter((item) => item.age !== null);
    const beside = items[Math.floor(items.length * part)];
    if (beside !== undefined)
      call.world.insert(list, [rowLike(call.world, list, beside, call.n)]);
  };
}

function moveToEnd(call: Call): void {
  const { list } = call.request;
  const items = call.world.all(list).filter((item) => item.age !== null);
  const moved = items[Math.floor(items.length / 3)];
  const newest = items.at(-1);
  if (
    list !== 'parties' ||
    moved === undefined ||
    newest === undefined ||
    items.length < 3
  )
    return;
  call.world.remove(list, new Set([moved.serial]));
  call.world.insert(list, [
    { key: moved.key, age: (newest.age ?? 0n) + 1n, fields: moved.fields },
  ]);
}

/**
 * A list that goes on for ever: behind its last row, and in front of each newest one, are
 * more.
 */
function endless(): Behaviour {
  let newest = 0;
  const makeUp = (world: Surroundings, list: ListName, at: number): Edge => {
    const model = world.foreign[list][at % world.foreign[list].length] as Item;
    const age = BigInt(10 ** 12 + at);
    const fields =
      list === 'parties'
        ? { id: `${model.key.slice(0, 50)}${at}` }
        : { ...model.fields, atBlock: String(age) };
    const key = Object.values(fields).join('/');
    return {
      cursor: `endless-${at}`,
      item: { serial: 10_000_000 + at, age, fields, key },
    };
  };
  const pageFrom = (call: Call, from: number, rows: number): readonly Edge[] =>
    Array.from({ length: rows }, (_, at) =>
      makeUp(call.world, call.request.list, from + at),
    );
  return {
    instead: (call) => {
      const { after, first = 20, newestFirst } = call.request;
      newest += 10_000;
      if (newestFirst)
        return describePage(
          pageFrom(call, newest, first).toReversed(),
          true,
          false,
        );
      const made = /^endless-(\d+)$/.exec(after ?? '')?.[1];
      return made === undefined
        ? undefined
        : describePage(pageFrom(call, Number(made) + 1, first), true, true);
    },
    page: (page, call) => {
      if (
        page.hasNextPage ||
        call.request.newestFirst ||
        page.edges.at(0)?.cursor.startsWith('endless') === true
      )
        return page;
      const missing = Math.max(
        1,
        (call.request.first ?? 20) - page.edges.length,
      );
      return describePage(
        [...page.edges, ...pageFrom(call, 0, missing)],
        true,
        page.hasPreviousPage,
      );
    },
  };
}

const cutOldest =
  (part: number): View =>
  (items) =>
    items.slice(share(items, part));
const cutNewest =
  (part: number): View =>
  (items) =>
    items.length < 3 ? items : items.slice(0, -share(items, part));
const cutMiddle = (items: readonly Item[]): readonly Item[] =>
  items.length < 5
    ? items
    : items.filter((_, at) => at !== Math.floor(items.length / 2));
const otherNetwork: View = (items, list, world) =>
  world.foreign[list].slice(0, Math.max(1, items.length));

/**
 * Serves only what is newer than the rows of the moment in which the fault began, but for
 * the newest three.
 */
function pruneEverythingHeld(): Behaviour {
  const newest = new Map<ListName, number>();
  return {
    view: (items, list) => {
      const border = newest.get(list) ?? items.length;
      newest.set(list, border);
      return items.length > border + 4 ? items.slice(border + 3) : items;
    },
  };
}

const AT_EACH: When = { order: 'oldest-first' };

export const FAULTS_IN_LISTS: readonly Fault[] = [
  declare(
    'lags-behind',
    'the source is a replica that lacks the newest fifth',
    'nothing: what it serves is consistent',
    show(cutNewest(0.2)),
  ),
  declare(
    'lags-now-and-then',
    'oldest first, every other request meets a replica that lacks the newest fifth',
    'the newest-first page has rows that are not reached',
    show(cutNewest(0.2)),
    { since: 'first-sync', when: { order: 'oldest-first', every: 2 } },
  ),
  declare(
    'stale-page-once',
    'one page comes from when the list had a tenth of its rows',
    'the newest-first page has rows that are not reached',
    show(cutNewest(0.9)),
    { since: 'first-sync', when: { order: 'oldest-first', from: 1, times: 1 } },
  ),
  declare(
    'stale-newest-page',
    'each newest-first page comes from when the list lacked its newest fifth',
    'it lacks rows that the other order has',
    show(cutNewest(0.2)),
    { since: 'first-sync', when: { order: 'newest-first' } },
  ),
  declare(
    'loses-newest-rows',
    'the newest three rows vanish',
    'the resume point’s rows are not served',
    show((items) => (items.length < 5 ? items : items.slice(0, -3))),
  ),
  declare(
    'loses-a-row-in-the-middle',
    'one row in the middle vanishes',
    'an audit: rows are gone',
    show(cutMiddle),
    { shownBy: 'audit' },
  ),
  declare(
    'loses-most-rows',
    'nine of ten rows vanish',
    'the overlap is missing, the list has shrunk',
    show((items) => items.slice(0, share(items, 0.1))),
    { neverComplete: true },
  ),
  declare(
    'becomes-empty',
    'the list is empty',
    'the overlap is missing, the list has shrunk',
    show(() => []),
    { neverComplete: true },
  ),
  declare(
    'loses-a-row-for-good',
    'one row in the middle goes and never comes back',
    'an audit: rows are gone',
    () => ({
      change: (call) =>
        call.world.remove(
          call.request.list,
          new Set(
            call.world
              .all(call.request.list)
              .slice(1, 2)
              .map((item) => item.serial),
          ),
        ),
    }),
    { when: { times: 1 }, shownBy: 'audit', heals: false },
  ),
  declare(
    'loses-most-rows-for-good',
    'nine of ten rows go and never come back',
    'the list has shrunk',
    () => ({
      change: (call) =>
        call.world.remove(
          call.request.list,
          new Set(
            call.world
              .all(call.request.list)
              .slice(2)
              .slice(0, -2)
              .map((item) => item.serial),
          ),
        ),
    }),
    { when: { times: 1 }, heals: false, neverComplete: true },
  ),
  declare(
    'prunes-the-oldest',
    'the oldest third is not kept any longer',
    'an audit: the list begins later',
    show(cutOldest(1 / 3)),
    { shownBy: 'audit' },
  ),
  declare(
    'prunes-everything-held',
    'only what came after the last sync is kept, and not all of that',
    'the resume point’s rows are not served',
    pruneEverythingHeld,
  ),
  declare(
    'prunes-at-every-other-request',
    'every other request meets a node without the oldest third',
    'the overlap, or an audit',
    show(cutOldest(1 / 3)),
    { shownBy: 'audit', when: { every: 2 } },
  ),
  declare(
    'restarts',
    'another network, whose heights overlap with those that are held',
    'nothing that is held is shown again',
    show(otherNetwork),
    { neverComplete: true },
  ),
  declare(
    'restarts-with-the-first-row',
    'another network that begins with the same row',
    'only one row of those that are held is shown again',
    show((items, list, world) => [
      ...items.slice(0, 1),
      ...otherNetwork(items.slice(1), list, world).map((item) => ({
        ...item,
        age: (item.age ?? 0n) + (items.at(0)?.age ?? 0n),
      })),
    ]),
    { neverComplete: true },
  ),
  declare(
    'alternates-between-networks',
    'every other request meets another network',
    'the overlap is missing',
    show(otherNetwork),
    { when: { every: 2 } },
  ),
  declare(
    'inserts-far-behind',
    'once, a row is inserted in the first third, between two syncs',
    'an audit: a row was inserted',
    () => ({ change: insertAt(1 / 3) }),
    { when: { ...AT_EACH, times: 1 }, shownBy: 'audit' },
  ),
  declare(
    'inserts-during-every-request',
    'before each request a row is inserted in the middle',
    'an audit: rows were inserted',
    () => ({ change: insertAt(1 / 2) }),
    { when: { times: 12 }, shownBy: 'audit', since: 'first-sync' },
  ),
  declare(
    'joins-the-newest-age',
    'once, a row comes that shares the newest row’s age: honest growth where ties come as they were inserted',
    'the newest-first page has a row that is not held, or reading on shows it',
    () => ({ change: insertAt(0.999) }),
    { when: { ...AT_EACH, times: 1 } },
  ),
  declare(
    'inserts-near-the-end',
    'a row is inserted a few rows before the newest one',
    'the newest-first page has a row that is not held',
    () => ({ change: insertNearEnd }),
    { when: { ...AT_EACH, times: 1 } },
  ),
  declare(
    'moves-a-row-to-the-end',
    'a row leaves its place and becomes the newest',
    'a row comes twice',
    () => ({ change: moveToEnd }),
    {
      when: { ...AT_EACH, times: 1, list: 'parties' },
      keepsOrder: false,
      shownBy: 'audit',
    },
  ),
  declare(
    'is-endless',
    'behind its last row the list goes on with made-up rows, for ever',
    'the ceiling of rows and requests',
    endless,
    { since: 'first-sync', neverComplete: true },
  ),
  declare(
    'refuses-old-cursors',
    'cursors of before are not known any longer',
    'the source refuses them',
    () => ({ change: (call) => call.world.forgetCursors(call.request.list) }),
    { when: { times: 1 } },
  ),
];

function insertNearEnd(call: Call): void {
  const { list } = call.request;
  const items = call.world.all(list).filter((item) => item.age !== null);
  const beside = items.at(-4);
  const next = items.at(-3);
  if (beside === undefined || next === undefined || beside.age === next.age)
    return;
  const row = rowLike(call.world, list, beside, call.n);
  call.world.insert(list, [row]);
}
