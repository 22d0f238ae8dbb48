/**
 * Groups of a page, and the overlap check: whether a page begins with rows that are held.
 * Pure.
 */
import type { ListedRow } from './ports.ts';

/**
 * Consecutive rows of one page that share a cursor. With most sources each row is one.
 */
export interface Group {
  readonly cursor: string;
  /** With repetition, in the order shown. */
  readonly keys: readonly string[];
}

export function groupRows(rows: readonly ListedRow[]): Group[] {
  const groups: { cursor: string; keys: string[] }[] = [];
  for (const { cursor, key } of rows) {
    const last = groups.at(-1);
    if (last?.cursor === cursor) last.keys.push(key);
    else groups.push({ cursor, keys: [key] });
  }
  return groups;
}

export type Overlap =
  /**
   * The held groups came again, then `fresh` rows; `groups` takes the place of the
   * expected ones.
   */
  | {
      readonly kind: 'shown';
      readonly fresh: readonly ListedRow[];
      readonly groups: readonly Group[];
    }
  /** The page ends before it has shown what is held: a larger one may show it. */
  | { readonly kind: 'cut' }
  /** Other rows came instead. */
  | { readonly kind: 'missing' };

/**
 * Compares a page with what is held behind the cursor that was sent.
 * @param sent the group whose cursor was sent; undefined for a page without one
 * @param expected the held groups behind it. The last may have been cut by its page's
 *   border, or have grown: it counts as shown where all that was seen of it comes again
 */
export function classifyOverlap(
  rows: readonly ListedRow[],
  sent: Group | undefined,
  expected: readonly Group[],
): Overlap {
  const page = groupRows(rows);
  const [first] = page;
  // After a cursor that tied rows share, the rest of its group may follow, less at least
  // one row.
  const isRest =
    first !== undefined &&
    first.keys.length < (sent?.keys.length ?? 0) &&
    subtract(first.keys, sent?.keys ?? []).length === 0;
  const groups = isRest ? page.slice(1) : page;
  for (const [at, held] of expected.entries()) {
    const shown = groups[at];
    if (shown === undefined)
      return { kind: rows.length === 0 ? 'missing' : 'cut' };
    const isLast = at === expected.length - 1;
    const isLacking = subtract(held.keys, shown.keys).length > 0;
    if (isLacking || (!isLast && shown.keys.length > held.keys.length)) {
      const isCut =
        at === groups.length - 1 &&
        subtract(shown.keys, held.keys).length === 0;
      return { kind: isCut ? 'cut' : 'missing' };
    }
  }
  const behind = isRest ? rows.slice(first.keys.length) : rows;
  const known = expected.flatMap(({ keys }) => keys);
  return { kind: 'shown', fresh: withoutKeys(behind, known), groups };
}

/** What is in `keys` more often than in `other`. */
export function subtract(
  keys: readonly string[],
  other: readonly string[],
): string[] {
  const take = takerOf(other);
  return keys.filter((key) => !take(key));
}

/** The rows that are left when each of `keys` has been taken away once. */
export function withoutKeys(
  rows: readonly ListedRow[],
  keys: readonly string[],
): ListedRow[] {
  const take = takerOf(keys);
  return rows.filter(({ key }) => !take(key));
}

/** Tells of a key as often as it is among them that it is. */
function takerOf(keys: readonly string[]): (key: string) => boolean {
  const counts = new Map<string, number>();
  for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
  return (key) => {
    const left = counts.get(key) ?? 0;
    if (left > 0) counts.set(key, left - 1);
    return left > 0;
  };
}

/** Whether two pages show the same rows, in whatever order ties come. */
export function isSameRows(
  left: readonly ListedRow[],
  right: readonly ListedRow[],
): boolean {
  const keys = right.map(({ key }) => key);
  return left.length === right.length && withoutKeys(left, keys).length === 0;
}

/**
 * Whether two pages behind one cursor show the same groups. Of a group that a border of
 * the page cuts, another part may come the second time, because ties come in any order.
 */
export function isSameGroups(
  left: readonly ListedRow[],
  right: readonly ListedRow[],
): boolean {
  if (isSameRows(left, right)) return true;
  const groups = groupRows(left);
  const again = groupRows(right);
  if (groups.length !== again.length) return false;
  return groups.every(({ cursor, keys: shown }, at) => {
    const other = again[at];
    if (other === undefined || other.keys.length !== shown.length) return false;
    if (subtract(shown, other.keys).length === 0) return true;
    const isCut = at === 0 || at === groups.length - 1;
    return isCut && cursor === other.cursor;
  });
}

/**
 * What a page behind a cursor whose own group may have been cut says of that group: with
 * `ask` the source was asked behind the last group that is held, because no page is large
 * enough to show it again.
 * - `complete`: the rest of the group came, one row less than is held, so that no row of
 *   it is missing
 * - `more`: rows of the group came that were not held; `groups` is the group with them
 * - `unseen`: none of its rows came again; where it is one row, nothing can be said
 *   against the page
 */
export interface Rest {
  readonly kind: 'complete' | 'unseen' | 'more';
  readonly fresh: readonly ListedRow[];
  readonly groups: readonly Group[];
}

export function classifyRest(rows: readonly ListedRow[], last: Group): Rest {
  const groups = groupRows(rows);
  const [first] = groups;
  const unknown = subtract(first?.keys ?? [], last.keys);
  if (first === undefined || unknown.length === first.keys.length)
    return { kind: 'unseen', fresh: rows, groups };
  if (unknown.length === 0 && first.keys.length < last.keys.length) {
    return {
      kind: 'complete',
      fresh: rows.slice(first.keys.length),
      groups: groups.slice(1),
    };
  }
  const fresh = withoutKeys(rows.slice(0, first.keys.length), last.keys);
  return {
    kind: 'more',
    fresh,
    groups: [{ cursor: first.cursor, keys: [...last.keys, ...unknown] }],
  };
}
