/**
 * The border rule. The source drops the first row behind a cursor without looking which row it is, and
 * rows of one group share a cursor. So each page is asked for one group before the edge, and counts
 * only where the edge's group comes again, whole.
 */
import { isWithin, keysOf, sameKeys, type CutPage, type RowGroup } from './groups.ts';
import type { Anchor, Group } from './ports.ts';

export const ANCHORS_MAX = 5;
const KEYS_SHOWN_MAX = 3;

/** Why a page is not the continuation of what is held. */
export interface Mismatch {
  readonly code: 'BORDER_NOT_SHOWN' | 'BORDER_DIFFERS' | 'BORDER_UNVERIFIABLE';
  readonly expected: readonly string[];
  readonly got: readonly string[];
}

export type Acceptance =
  | { readonly accepted: true; readonly fresh: readonly RowGroup[] }
  | { readonly accepted: false; readonly mismatch: Mismatch };

/** Whether a page asked with this anchor must show something that is held. */
export function isVerifiable(anchor: Anchor): boolean {
  const rowsOfCursor = anchor.held[0]?.keys.length ?? 0;
  return anchor.held.length > 1 || rowsOfCursor > 1 || anchor.partial !== undefined;
}

/**
 * Checks a page that was asked with `anchor` against what the anchor holds.
 * @returns the whole groups behind the edge; none means that the page is too small for its groups
 */
export function accept(anchor: Anchor, page: CutPage): Acceptance {
  const shown = page.partial === undefined ? page.whole : [...page.whole, page.partial];
  let index = 0;
  for (const [order, held] of anchor.held.entries()) {
    const group = shown[index];
    const isCut = group !== undefined && group === page.partial;
    const verdict = compare(held, group, { isCursorsOwn: order === 0, isCut });
    if (verdict === 'differs') return refuse('BORDER_DIFFERS', held, group);
    if (verdict === 'absent') continue;
    index += 1;
    if (isCut) return { accepted: true, fresh: [] };
  }
  const { partial } = anchor;
  if (partial !== undefined) {
    const group = shown[index];
    if (group === undefined) return refuse('BORDER_NOT_SHOWN', partial, group);
    // Cut again, it may show other rows of its group.
    const isShown = group === page.partial || isWithin(partial.keys, keysOf(group).keys);
    if (group.group !== partial.group || !isShown) return refuse('BORDER_DIFFERS', partial, group);
  } else if (index === 0) {
    const [expected] = anchor.held;
    return refuse(isVerifiable(anchor) ? 'BORDER_NOT_SHOWN' : 'BORDER_UNVERIFIABLE', expected, shown[0]);
  }
  return { accepted: true, fresh: page.whole.slice(index) };
}

function compare(
  held: Group,
  shown: RowGroup | undefined,
  border: { isCursorsOwn: boolean; isCut: boolean },
): 'same' | 'absent' | 'differs' {
  if (shown?.group !== held.group) {
    // Of the cursor's group one row is dropped, which may be all of it.
    return border.isCursorsOwn && held.keys.length === 1 ? 'absent' : 'differs';
  }
  const { keys } = keysOf(shown);
  if (border.isCut) return isWithin(keys, held.keys) ? 'same' : 'differs';
  if (!border.isCursorsOwn) return sameKeys(keys, held.keys) ? 'same' : 'differs';
  return keys.length >= held.keys.length - 1 && isWithin(keys, held.keys) ? 'same' : 'differs';
}

function refuse(code: Mismatch['code'], held: Group | undefined, shown: RowGroup | undefined): Acceptance {
  return {
    accepted: false,
    mismatch: {
      code,
      expected: held?.keys.slice(0, KEYS_SHOWN_MAX) ?? [],
      got: shown?.rows.slice(0, KEYS_SHOWN_MAX).map((row) => row.key) ?? [],
    },
  };
}

/**
 * The anchor to go on with behind `whole`, the groups that are held when this page is committed.
 * @param edge the edge's group as it was held before this page; the page may show it in part
 */
export function nextAnchor(
  whole: readonly RowGroup[],
  context: { baseUrl: string; edge?: Group | undefined; partial?: RowGroup | undefined },
): Anchor | undefined {
  const last = whole.at(-1);
  if (last === undefined) return undefined;
  const before = whole.at(-2);
  const own = before ?? last;
  const { edge, partial } = context;
  const held = [edge?.group === own.group ? edge : keysOf(own)];
  if (before !== undefined) held.push(keysOf(last));
  return {
    cursor: own.rows.at(-1)?.cursor ?? '',
    baseUrl: context.baseUrl,
    held,
    ...(partial === undefined ? {} : { partial: keysOf(partial) }),
  };
}

/** The anchor to read away from the beginning of an order later: from its second group over its first. */
export function firstAnchor(whole: readonly RowGroup[], baseUrl: string): Anchor | undefined {
  return nextAnchor(whole.slice(0, 2).toReversed(), { baseUrl });
}

/** The newest last; an anchor without a cursor is none. */
export function withAnchor(anchors: readonly Anchor[], anchor: Anchor | undefined): readonly Anchor[] {
  if (anchor === undefined || anchor.cursor === '') return anchors;
  return [...anchors, anchor].slice(-ANCHORS_MAX);
}
