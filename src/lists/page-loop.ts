/**
 * Reads a list to its end and proves that end by the source's newest-first page: each
 * of its rows must be stored or be reached by reading further, and the last row that
 * was read must be among them.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { errorCode } from '../errors/errors.ts';
import { NETWORK_PARTY, withoutOddKeys } from '../ledger/ids.ts';
import { reportProgress, type SyncContext } from './sync-context.ts';
import { doubt, EndNotShown, OverlapMissing } from './page-checks.ts';
import type { ListedRow } from './ports.ts';
import type { Asked, ListReader } from './page-fetcher.ts';

/**
 * How many pages are read before the newest page is first requested, and by which
 * factor that number grows. A long list is checked for its end while it is being read,
 * so that the sync ends even if the list grows faster than it is read.
 */
const FIRST_LOOK_PAGES = 16;
const LOOK_AGAIN_FACTOR = 4;
/**
 * Maximum number of attempts to reach rows that the source has shown before a doubt
 * about the source is opened.
 */
const REACH_ATTEMPTS_MAX = 3;
const PAUSE_MS = 500;

interface Newest {
  readonly asked: Asked;
  /**
   * The keys of the rows that can be parsed. `network` is left out if the source's
   * order has no position for it.
   */
  readonly keys: readonly string[];
  /** Keys that are not stored yet. */
  readonly unheld: Set<string>;
  /**
   * The last stored position when the page was requested, and the keys of the last
   * group.
   */
  readonly lastPos: bigint;
  readonly lastKeys: readonly string[];
}

/**
 * Reads the list until its end is proven.
 * @returns the keys of the newest page, all of which are stored
 */
export async function readToEnd(
  reader: ListReader,
): Promise<readonly string[]> {
  const { tally } = reader.context;
  let early: Newest | undefined;
  let lookAt = FIRST_LOOK_PAGES;
  for (;;) {
    const { fresh, promisesMore } = await reader.step(false);
    dropReached(early, fresh);
    if (!promisesMore) break;
    if (early?.unheld.size === 0) {
      // The source promises more rows after the newest known rows. If a whole page of
      // new rows has appeared in the meantime, the list is growing as fast as it is
      // read. Otherwise the list has an end, and the page there need not show all rows
      // that are tied for the newest position.
      const now = await lookForNewest(reader);
      if (now.keys.length > 0 && now.unheld.size === now.keys.length)
        return proveEnd(reader, now);
      early = undefined;
      lookAt = reader.pages * LOOK_AGAIN_FACTOR;
    } else if (reader.pages >= lookAt) {
      early = await lookForNewest(reader);
      lookAt = reader.pages * LOOK_AGAIN_FACTOR;
    }
  }
  tally.phase = 'proving the end';
  reportProgress(reader.context);
  return proveEnd(reader, await lookForNewest(reader));
}

async function proveEnd(
  reader: ListReader,
  found: Newest,
): Promise<readonly string[]> {
  const { list, tally } = reader.context;
  let newest = found;
  await reach(reader, newest);
  await checkWholeList(reader, newest);
  if (!(await showsLastRow(reader, newest))) {
    const isOldest = await isFirstPage(reader, newest);
    // Unlike block heights, parties do not show from which end the list was read.
    if (isOldest && list === 'parties') throw noEnd(reader.context);
    newest = isOldest ? await lookFromEnd(reader) : await lookForNewest(reader);
    await reach(reader, newest);
    if (!(await showsLastRow(reader, newest))) {
      if (isOldest) throw noEnd(reader.context);
      const state =
        'the newest page lacks the row that is last when reading oldest first';
      throw doubt(list, 'NEWEST_LACKS_LAST', state, {
        last: newest.lastKeys.at(-1),
      });
    }
  }
  return [
    ...new Set([
      ...newest.keys,
      ...(tally.network === 'stored' ? [NETWORK_PARTY] : []),
    ]),
  ];
}

function noEnd({ list }: SyncContext): EndNotShown {
  return new EndNotShown(
    `Cannot call ${list} complete: the source shows no end, newest first or from ` +
      `the end; see whether it can list ${list} newest first`,
    { code: 'NO_END_SHOWN' },
  );
}

/** Keeps reading until every row of the newest page is stored. */
async function reach(reader: ListReader, newest: Newest): Promise<void> {
  const { list, pauseMs = PAUSE_MS, signal } = reader.context;
  const { unheld } = newest;
  for (let attempt = 1; unheld.size > 0;) {
    const { fresh } = await reader.step(true);
    dropReached(newest, fresh);
    if (fresh.length > 0) continue;
    if (attempt >= REACH_ATTEMPTS_MAX) {
      // Rows may have been inserted among the last ones, so the end is reread.
      if (reader.generation.kind === 'current') {
        throw new OverlapMissing(
          list,
          'rows of the newest page do not follow the last rows',
        );
      }
      const state =
        'rows of the newest page are never reached when reading oldest first';
      throw doubt(list, 'NEWEST_NOT_REACHED', state, {
        rows: unheld.size,
        first: [...unheld][0],
      });
    }
    attempt += 1;
    await sleep(pauseMs, undefined, { signal });
  }
}

function dropReached(
  newest: Newest | undefined,
  fresh: readonly ListedRow[],
): void {
  for (const { key } of fresh) newest?.unheld.delete(key);
}

/**
 * Whether the page shows the last row. A page does not prove the end merely because all
 * of its rows are stored: a source that ignores the requested order sends an earlier
 * page.
 */
async function showsLastRow(
  reader: ListReader,
  { asked: { page }, keys, lastKeys, lastPos }: Newest,
): Promise<boolean> {
  if (lastKeys.length === 0 && keys.length === 0) return true;
  // The last row may be one that cannot be parsed.
  if (page.rows.some(({ key }) => lastKeys.includes(key))) return true;
  const { highestPos } = await reader.locate(keys);
  return highestPos !== null && highestPos > lastPos;
}

/**
 * Whether the source ignores the requested order, so that its newest-first page is the
 * first page of the oldest-first order.
 */
async function isFirstPage(
  reader: ListReader,
  { keys }: Newest,
): Promise<boolean> {
  const { highestPos, rowsUpTo } = await reader.locate(keys, 0n);
  return highestPos !== null && rowsUpTo <= BigInt(keys.length);
}

/**
 * Checks a page that has room left and no page after it. It shows the whole list, so it
 * must have as many rows as are stored.
 */
async function checkWholeList(
  reader: ListReader,
  { asked, keys, lastPos }: Newest,
): Promise<void> {
  if (asked.page.hasNextPage || !reader.hasRoom(asked)) return;
  const { list } = reader.context;
  const { rowsUpTo: expected } = await reader.locate(keys, lastPos);
  if (BigInt(keys.length) === expected) return;
  if (keys.length === 0) {
    throw doubt(
      list,
      'LIST_EMPTY',
      'the newest page is empty, although rows are held',
      {
        held: `${expected}`,
      },
    );
  }
  const seen = { newestFirst: keys.length, oldestFirst: `${expected}` };
  throw doubt(
    list,
    'SETS_DIFFER',
    'the two orders return different rows, although the list fits on one page',
    seen,
  );
}

async function lookForNewest(
  reader: ListReader,
  fromEnd = false,
): Promise<Newest> {
  const { list } = reader.context;
  const { lastPos } = reader.generation;
  const lastKeys = reader.lastGroup?.keys ?? [];
  const asked = await reader.askNewest(fromEnd);
  const keys = withoutOddKeys(await placedKeys(reader, asked));
  const unheld = new Set(keys);
  if (list === 'parties' && unheld.size < keys.length) {
    throw doubt(list, 'ROW_TWICE', 'the newest page lists a row twice', {
      rows: keys.length,
    });
  }
  for (const key of (await reader.locate(keys)).held) unheld.delete(key);
  return { asked, keys, unheld, lastPos, lastKeys };
}

const REFUSALS = [
  'SOURCE_REFUSED',
  'SOURCE_ABSENT',
  'SOURCE_STATUS',
  'PAGE_SHAPE',
];

/**
 * Requests the last page of the oldest-first order, for a source that has no
 * newest-first page.
 */
async function lookFromEnd(reader: ListReader): Promise<Newest> {
  try {
    return await lookForNewest(reader, true);
  } catch (error) {
    throw REFUSALS.includes(errorCode(error)) ? noEnd(reader.context) : error;
  }
}

/**
 * Returns the keys that have a position in the order. In the public service `network`
 * has none: it comes first in newest-first order, but in oldest-first order it is
 * listed only if everything fits on one page. No other key is exempt.
 */
async function placedKeys(
  reader: ListReader,
  { page: { rows } }: Asked,
): Promise<readonly string[]> {
  const { list, session, tally } = reader.context;
  const keys = rows.map(({ key }) => key);
  const at = keys.indexOf(NETWORK_PARTY);
  const shown = rows[at] ?? reader.network;
  const isAtOdds = at === 0 || reader.network !== undefined;
  if (list !== 'parties' || shown === undefined || !isAtOdds) return keys;
  // A stored position means that the source lists `network` like any other row.
  if ((await reader.locate([NETWORK_PARTY])).highestPos !== null) return keys;
  if (tally.network !== 'stored')
    await session.keepUnplaced(reader.generation.epoch, shown);
  tally.network = 'stored';
  return keys.filter((_, index) => index !== at);
}
