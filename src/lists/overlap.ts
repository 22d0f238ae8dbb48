/**
 * Groups the rows of a page, and checks its overlap: a page must begin with rows that
 * are already stored. Pure functions.
 */
import type { ListedRow } from './ports.ts';

/**
 * Consecutive rows of one page that share a cursor. Most sources give each row its own
 * cursor; a group then has one row.
 */
export interface Group {
  readonly cursor: string;
  /** Keys in page order, including repeated ones. */
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
   * The page repeats the stored groups, followed by the `fresh` rows. `groups` replaces
   * the expected groups.
   */
  | {
      readonly kind: 'shown';
      readonly fresh: readonly ListedRow[];
      readonly groups: readonly Group[];
    }
  /** The page ends before it has shown all stored rows. A larger page may show them. */
  | { readonly kind: 'cut' }
  /** The page does not repeat the stored rows. */
  | { readonly kind: 'missing' };

/**
 * Compares a page with the rows that are stored after the cursor that was sent.
 * @param sent the group whose cursor was sent; undefined if the page was requested
 *   without a cursor
 * @param expected the stored groups after that cursor. The last group may have been cut
 *   off at the end of its page, or may have grown, so it counts as shown if the page
 *   has all of its stored rows
 */
export function classifyOverlap(
  rows: readonly ListedRow[],
  sent: Group | undefined,
  expected: readonly Group[],
): Overlap {
  const page = groupRows(rows);
  const [first] = page;
  // A cursor may be shared by tied rows. The page after it may then begin with the rest
  // of that group, which is at least one row smaller than the group.
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

/** Returns the keys that occur in `keys` more often than in `other`. */
export function subtract(
  keys: readonly string[],
  other: readonly string[],
): string[] {
  const take = takerOf(other);
  return keys.filter((key) => !take(key));
}

/** Returns the rows that remain after each of `keys` has been removed once. */
export function withoutKeys(
  rows: readonly ListedRow[],
  keys: readonly string[],
): ListedRow[] {
  const take = takerOf(keys);
  return rows.filter(({ key }) => !take(key));
}

/**
 * Returns a predicate that consumes keys: it returns true for a key as many times as the
 * key occurs in `keys`.
 */
function takerOf(keys: readonly string[]): (key: string) => boolean {
  const counts = new Map<string, number>();
  for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
  return (key) => {
    const left = counts.get(key) ?? 0;
    if (left > 0) counts.set(key, left - 1);
    return left > 0;
  };
}

/** Whether two pages show the same rows. Tied rows may be in any order. */
export function isSameRows(
  left: readonly ListedRow[],
  right: readonly ListedRow[],
): boolean {
  const keys = right.map(({ key }) => key);
  return left.length === right.length && withoutKeys(left, keys).length === 0;
}

/**
 * Whether two pages after the same cursor show the same groups. If a group is cut off
 * at the start or end of a page, the second page may show a different part of it,
 * because tied rows have no fixed order.
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
 * What a page proves about the last stored group, which may have been cut off at the
 * end of its page. The page was requested after that group's own cursor, because no
 * page is large enough to show the whole group again.
 *
 * - `complete`: the page shows the rest of the group, at least one row less than is
 *   stored, so no row of the group is missing
 * - `more`: the page shows rows of the group that were not stored; `groups` has the
 *   group with them
 * - `unseen`: the page shows none of the group's rows; if the group has one row, that
 *   is no reason to refuse the page
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
