/**
 * Estimates the number of rows in a list from two requests, one page from each end, so
 * that the size of a first run is known before it begins. The estimate is only for
 * people: nothing is stored, and no decision depends on it.
 */
import { heightOf, NETWORK_PARTY } from '../ledger/ids.ts';
import { parseInstant } from '../time/time.ts';
import type { ListedRow, ListName, ListSource, Page } from './ports.ts';

/** What two pages of a list show about its size. */
export interface ListSize {
  readonly list: ListName;
  /** The number of rows if the two pages contain the whole list; otherwise undefined. */
  readonly exactRows: number | undefined;
  /** Whether the party `network` was seen, which is listed as a row but has no ledger. */
  readonly hasNetwork: boolean;
  /** The number of rows that were seen. The list has at least as many. */
  readonly rowsMin: number;
  /**
   * The number of rows if the whole list were as dense as its sparser end (`low`) or
   * its denser end (`high`). Undefined if the rows show no position.
   */
  readonly estimate:
    | { readonly low: number; readonly high: number }
    | undefined;
  /**
   * Average size of a row in a response, in bytes; undefined if the source sent no rows.
   */
  readonly bytesPerRow: number | undefined;
  /** The number of rows in a full page, which may be fewer than were requested. */
  readonly pageRows: number;
  /** How long one page took on average, in milliseconds. */
  readonly pageMs: number;
}

interface SizeRequest {
  readonly list: ListName;
  readonly size: number;
}

/**
 * Requests the oldest page and the newest page of a list.
 * @throws as `ListSource.page` does
 */
export async function estimateListSize(
  source: Pick<ListSource, 'page'>,
  { list, size }: SizeRequest,
  signal: AbortSignal,
): Promise<ListSize> {
  const startMs = performance.now();
  const oldest = await source.page({ list, size, newestFirst: false }, signal);
  const newest = await source.page({ list, size, newestFirst: true }, signal);
  const pageMs = (performance.now() - startMs) / 2;
  return { ...measureList(list, oldest, newest), pageMs };
}

/** Estimates the size of a list from its two ends. */
export function measureList(
  list: ListName,
  oldest: Page,
  newest: Page,
): Omit<ListSize, 'pageMs'> {
  const rows = [...oldest.rows, ...newest.rows];
  const seen = new Set(rows.map(({ key }) => key));
  const oldestKeys = new Set(oldest.rows.map(({ key }) => key));
  const isWhole =
    !oldest.hasNextPage ||
    newest.rows.some(({ key }) => key !== NETWORK_PARTY && oldestKeys.has(key));
  const bytes = (oldest.bytes ?? 0) + (newest.bytes ?? 0);
  return {
    list,
    exactRows: isWhole ? seen.size : undefined,
    hasNetwork: list === 'parties' && seen.has(NETWORK_PARTY),
    rowsMin: seen.size,
    estimate: isWhole ? undefined : estimateRows(list, oldest, newest),
    bytesPerRow: bytes > 0 && rows.length > 0 ? bytes / rows.length : undefined,
    pageRows: Math.max(oldest.rows.length, newest.rows.length),
  };
}

function estimateRows(
  list: ListName,
  oldest: Page,
  newest: Page,
): ListSize['estimate'] {
  const atStart = findPositions(list, oldest.rows);
  const atEnd = findPositions(list, newest.rows);
  const first = atStart[0];
  const last = atEnd.at(-1);
  if (first === undefined || last === undefined || last <= first)
    return undefined;
  const seen = oldest.rows.length + newest.rows.length;
  const estimates = [atStart, atEnd]
    .map((positions) => extrapolate(positions, last - first))
    .filter((rows) => rows !== undefined)
    .map((rows) => Math.max(rows, seen));
  if (estimates.length === 0) return undefined;
  return { low: Math.min(...estimates), high: Math.max(...estimates) };
}

/**
 * Returns how many rows a span would have if it were as dense as these rows.
 * @param positions in ascending order
 */
function extrapolate(
  positions: readonly bigint[],
  span: bigint,
): number | undefined {
  const first = positions[0];
  const last = positions.at(-1);
  if (first === undefined || last === undefined || last === first)
    return undefined;
  const steps = BigInt(positions.length - 1);
  return Number((steps * span) / (last - first)) + 1;
}

/** Returns the positions that rows show, in ascending order. */
function findPositions(
  list: ListName,
  rows: readonly ListedRow[],
): readonly bigint[] {
  return rows
    .map((row) => findPosition(list, row))
    .filter((position) => position !== undefined)
    .toSorted((a, b) => (a < b ? -1 : Number(a > b)));
}

/** An instant inside the JSON of a cursor. */
const INSTANT_IN_TEXT = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/u;

/**
 * Returns a checkpoint's block, or the instant in a party's cursor in microseconds. A
 * cursor is opaque to a sync. Only this estimate looks inside it, and it copes if it
 * finds nothing.
 */
function findPosition(
  list: ListName,
  { key, cursor, odd }: ListedRow,
): bigint | undefined {
  if (odd !== undefined) return undefined;
  if (list === 'checkpoints') return heightOf(key);
  const text = Buffer.from(cursor, 'base64').toString('utf8');
  const [found] = INSTANT_IN_TEXT.exec(text) ?? [];
  return found === undefined ? undefined : parseInstant(found);
}
