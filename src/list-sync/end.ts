/**
 * The end of a list is not believed: the source's newest-first page must show it. Each of its rows is held, or
 * reached by going on, and the last row that was read is among them.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { errorCode } from '../core/errors.ts';
import { NETWORK_PARTY } from '../core/ids.ts';
import { PAUSE_MS, reportProgress, type SyncContext } from './context.ts';
import { doubt, EndNotShown } from './guards.ts';
import type { ListedRow, Page } from './ports.ts';
import { OverlapMissing, type Reader } from './reader.ts';

/** A long list is also asked for its end on the way, so that a list that grows faster than it is read still ends. */
const FIRST_LOOK_PAGES = 16;
const LOOK_AGAIN_FACTOR = 4;
/** How often the source is asked for rows that it has shown, before it is doubted. */
const REACH_ATTEMPTS_MAX = 3;

export interface Newest {
  readonly page: Page;
  readonly size: number;
  /** Without `network`, where the source's order has no place for it. */
  readonly rows: readonly ListedRow[];
  /** Those that are not held yet. */
  readonly unheld: Set<string>;
  /** The last place that was held when the page was asked for, and the last group's rows. */
  readonly lastPos: bigint;
  readonly lastKeys: readonly string[];
}

/** @returns the keys of the newest page, all held; or that the resume point was an old one */
export async function readToEnd(context: SyncContext, reader: Reader): Promise<readonly string[] | 'stale'> {
  let early: Newest | undefined;
  let lookAt = FIRST_LOOK_PAGES;
  for (;;) {
    const step = await reader.step(false);
    if (step === 'stale') return step;
    dropReached(early, step.fresh);
    if (!step.promisesMore) break;
    if (early?.unheld.size === 0) return proveEnd(context, reader, early);
    if (reader.pages >= lookAt) {
      early = await lookForNewest(context, reader, false);
      lookAt = reader.pages * LOOK_AGAIN_FACTOR;
    }
  }
  context.tally.phase = 'proving the end';
  reportProgress(context);
  return proveEnd(context, reader, await lookForNewest(context, reader, false));
}

async function proveEnd(
  context: SyncContext,
  reader: Reader,
  found: Newest,
): Promise<readonly string[] | 'stale'> {
  let newest = found;
  if ((await reach(context, reader, newest)) === 'stale') return 'stale';
  await checkWholeList(context, reader, newest);
  if (!(await showsLastRow(context, reader, newest))) {
    const isOldest = await isFirstPage(context, reader, newest);
    // A list of parties cannot show from which end it was read; heights can.
    if (isOldest && context.list === 'parties') throw noEnd(context);
    newest = isOldest ? await lookFromEnd(context, reader) : await lookForNewest(context, reader, false);
    if ((await reach(context, reader, newest)) === 'stale') return 'stale';
    if (!(await showsLastRow(context, reader, newest))) {
      if (isOldest) throw noEnd(context);
      const last = newest.lastKeys.at(-1);
      const state = 'the newest page lacks the row that comes last, oldest first';
      throw doubt(context.list, 'NEWEST_LACKS_LAST', state, { last });
    }
  }
  const network = context.tally.network === 'stored' ? [NETWORK_PARTY] : [];
  return [...new Set([...newest.rows.map(({ key }) => key), ...network])];
}

function noEnd({ list }: SyncContext): EndNotShown {
  return new EndNotShown(
    `Cannot call ${list} complete: the source shows no end, newest first or from the end; see whether it can list ${list} newest first`,
    { code: 'NO_END_SHOWN' },
  );
}

/** Goes on until every row of the newest page is held. */
async function reach(context: SyncContext, reader: Reader, newest: Newest): Promise<'stale' | undefined> {
  const { unheld } = newest;
  for (let attempt = 1; unheld.size > 0;) {
    const step = await reader.step(true);
    if (step === 'stale') return step;
    dropReached(newest, step.fresh);
    if (step.fresh.length > 0) continue;
    if (attempt >= REACH_ATTEMPTS_MAX) {
      // Rows may have been inserted among the last ones: the end is read again.
      if (reader.generation.kind === 'current') {
        throw new OverlapMissing('rows of the newest page do not come behind the last ones');
      }
      const state = 'rows of the newest page do not come, oldest first';
      throw doubt(context.list, 'NEWEST_NOT_REACHED', state, { rows: unheld.size, first: [...unheld][0] });
    }
    attempt += 1;
    await sleep(context.deps.pauseMs ?? PAUSE_MS, undefined, { signal: context.signal });
  }
  return undefined;
}

function dropReached(newest: Newest | undefined, fresh: readonly ListedRow[]): void {
  if (newest !== undefined) for (const { key } of fresh) newest.unheld.delete(key);
}

/** A page whose rows are all held proves no end unless it is the last page: the source may ignore the order. */
async function showsLastRow({ session }: SyncContext, reader: Reader, newest: Newest): Promise<boolean> {
  if (newest.lastKeys.length === 0 && newest.rows.length === 0) return true;
  const keys = newest.rows.map(({ key }) => key);
  if (newest.lastKeys.some((key) => keys.includes(key))) return true;
  const { highestPos } = await session.locate(reader.generation, keys);
  return highestPos > newest.lastPos;
}

/** Whether the source ignores the order: its newest-first page is the first page, oldest first. */
async function isFirstPage({ session }: SyncContext, reader: Reader, { rows }: Newest): Promise<boolean> {
  const keys = rows.map(({ key }) => key);
  const { highestPos, rowsUpTo } = await session.locate(reader.generation, keys, 0n);
  return highestPos > 0n && rowsUpTo <= BigInt(rows.length);
}

/** A page with room left, and none behind it, shows the whole list: as many rows as are held. */
async function checkWholeList(context: SyncContext, reader: Reader, newest: Newest): Promise<void> {
  const { list, session } = context;
  const { page, size, rows } = newest;
  if (page.hasNextPage || !reader.hasRoom(size, page.rows.length)) return;
  const keys = rows.map(({ key }) => key);
  const { rowsUpTo: expected } = await session.locate(reader.generation, keys, newest.lastPos);
  if (BigInt(rows.length) === expected) return;
  if (rows.length === 0) {
    throw doubt(list, 'LIST_EMPTY', 'the newest page is empty, where rows are held', { held: `${expected}` });
  }
  throw doubt(list, 'SETS_DIFFER', 'both orders show other rows of a list that fits one page', {
    newestFirst: rows.length,
    oldestFirst: `${expected}`,
  });
}

async function lookForNewest(context: SyncContext, reader: Reader, fromEnd: boolean): Promise<Newest> {
  const { lastPos } = reader;
  const lastKeys = reader.lastGroup?.keys ?? [];
  const { page, size } = await reader.askNewest(fromEnd);
  const rows = await withoutUnplaced(context, reader, page);
  const keys = rows.map(({ key }) => key);
  if (context.list === 'parties' && new Set(keys).size < keys.length) {
    throw doubt(context.list, 'ROW_TWICE', 'the newest page lists a row twice', { rows: keys.length });
  }
  const unheld = new Set(await context.session.unheld(reader.generation, keys));
  return { page, size, rows, unheld, lastPos, lastKeys };
}

/** Where the source has no newest-first page, the last page of the other order may serve. */
async function lookFromEnd(context: SyncContext, reader: Reader): Promise<Newest> {
  try {
    return await lookForNewest(context, reader, true);
  } catch (error) {
    if (!REFUSALS.has(errorCode(error))) throw error;
    throw noEnd(context);
  }
}

const REFUSALS: ReadonlySet<string> = new Set([
  'SOURCE_REFUSED',
  'SOURCE_ABSENT',
  'SOURCE_STATUS',
  'PAGE_SHAPE',
]);

/**
 * The public service lists `network` first, newest first, and oldest first only where everything fits one
 * page: it has no place in the order. The exception covers `network` and nothing else.
 */
async function withoutUnplaced(
  context: SyncContext,
  reader: Reader,
  page: Page,
): Promise<readonly ListedRow[]> {
  if (context.list !== 'parties') return page.rows;
  const at = page.rows.findIndex(({ key }) => key === NETWORK_PARTY);
  const shown = page.rows[at] ?? reader.network;
  if (shown === undefined) return page.rows;
  const { generation } = reader;
  // Placed like any other row where the source lists it so.
  const isPlaced = !(await context.session.isUnplaced(generation, NETWORK_PARTY));
  if (isPlaced) return page.rows;
  if (at !== 0 && reader.network === undefined) return page.rows;
  await keepNetwork(context, reader, shown);
  return page.rows.filter((_, index) => index !== at);
}

async function keepNetwork(context: SyncContext, { generation }: Reader, shown: ListedRow): Promise<void> {
  const { session, tally } = context;
  if (tally.network !== 'stored') await session.keepUnplaced(generation.epoch, shown);
  tally.network = 'stored';
}
