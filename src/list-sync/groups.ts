/** Groups of a page, and the overlap check: whether a page begins with rows that are held. Pure. */
import type { ListedRow } from './ports.ts';

/** Consecutive rows of one page that share a cursor. With most sources each row is one. */
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
  /** The held groups came again, then `fresh` rows; `groups` takes the place of the expected ones. */
  | { readonly kind: 'shown'; readonly fresh: readonly ListedRow[]; readonly groups: readonly Group[] }
  /** The page ends before it has shown what is held: a larger one may show it. */
  | { readonly kind: 'cut' }
  /** Other rows came instead. */
  | { readonly kind: 'missing' };

/**
 * Compares a page with what is held behind the cursor that was sent.
 * @param sent the group whose cursor was sent; undefined for a page without one
 * @param expected the held groups behind it. The last may have been cut by its page's border, or have grown:
 *   it counts as shown where all that was seen of it comes again
 */
export function classifyOverlap(
  rows: readonly ListedRow[],
  sent: Group | undefined,
  expected: readonly Group[],
): Overlap {
  const page = groupRows(rows);
  // After a cursor that tied rows share, the rest of its group may follow, less at least one row.
  const isRest = sent !== undefined && page[0] !== undefined && isRestOf(page[0], sent);
  let at = isRest ? 1 : 0;
  for (const [index, held] of expected.entries()) {
    const shown = page[at];
    if (shown === undefined) return { kind: rows.length === 0 ? 'missing' : 'cut' };
    const isLast = index === expected.length - 1;
    const lacking = subtract(held.keys, shown.keys);
    if (lacking.length > 0 || (!isLast && shown.keys.length > held.keys.length)) {
      const isCut = at === page.length - 1 && subtract(shown.keys, held.keys).length === 0;
      return { kind: isCut ? 'cut' : 'missing' };
    }
    at += 1;
  }
  const known = expected.flatMap(({ keys }) => keys);
  const skipped = isRest ? (page[0]?.keys.length ?? 0) : 0;
  return {
    kind: 'shown',
    fresh: withoutKeys(rows.slice(skipped), known),
    groups: page.slice(isRest ? 1 : 0),
  };
}

function isRestOf(shown: Group, sent: Group): boolean {
  return shown.keys.length < sent.keys.length && subtract(shown.keys, sent.keys).length === 0;
}

/** What is in `keys` more often than in `other`. */
export function subtract(keys: readonly string[], other: readonly string[]): string[] {
  const counts = countOf(other);
  return keys.filter((key) => !take(counts, key));
}

/** The rows that are left when each of `keys` has been taken away once. */
export function withoutKeys(rows: readonly ListedRow[], keys: readonly string[]): ListedRow[] {
  const counts = countOf(keys);
  return rows.filter(({ key }) => !take(counts, key));
}

function countOf(keys: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
  return counts;
}

function take(counts: Map<string, number>, key: string): boolean {
  const left = counts.get(key) ?? 0;
  if (left > 0) counts.set(key, left - 1);
  return left > 0;
}

/** Whether two pages show the same rows, in whatever order ties come. */
export function isSameRows(left: readonly ListedRow[], right: readonly ListedRow[]): boolean {
  const keys = right.map(({ key }) => key);
  return left.length === right.length && withoutKeys(left, keys).length === 0;
}

/**
 * What a page behind a cursor whose own group may have been cut says of that group: with `ask` the source was
 * asked behind the last group that is held, because no page is large enough to show it again.
 * - `complete`: the rest of the group came, one row less than is held, so that no row of it is missing
 * - `more`: rows of the group came that were not held
 * - `unseen`: none of its rows came again; where it is one row, nothing can be said against the page
 */
export type Rest =
  | {
      readonly kind: 'complete' | 'unseen';
      readonly fresh: readonly ListedRow[];
      readonly groups: readonly Group[];
    }
  | { readonly kind: 'more'; readonly fresh: readonly ListedRow[]; readonly group: Group };

export function classifyRest(rows: readonly ListedRow[], last: Group): Rest {
  const page = groupRows(rows);
  const [first] = page;
  const isOwn = first !== undefined && subtract(first.keys, last.keys).length < first.keys.length;
  if (!isOwn) return { kind: 'unseen', fresh: rows, groups: page };
  const unknown = subtract(first.keys, last.keys);
  if (unknown.length === 0 && first.keys.length < last.keys.length) {
    return { kind: 'complete', fresh: rows.slice(first.keys.length), groups: page.slice(1) };
  }
  const group = { cursor: first.cursor, keys: [...last.keys, ...unknown] };
  return { kind: 'more', fresh: withoutKeys(rows.slice(0, first.keys.length), last.keys), group };
}
