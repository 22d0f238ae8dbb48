/**
 * Positions on a list's axis. A party's is invented: steps wide enough to insert between two rows, far
 * enough apart that a chain begun at the head never meets the one below. A checkpoint's is its height.
 */
import type { RowGroup } from './groups.ts';
import type { Direction, ListName, PlacedRows } from './ports.ts';

export const STEP = 1024n;
/** Room between the highest place of all and a new chain above it: 4·10^9 rows counted down by STEP. */
export const HEAD_ROOM = 1n << 42n;

/** Where more rows may follow, they get so many times less than there is. */
const ROOM_FOR_MORE = 16n;

/** The place before the first row of a chain that touches no other: above all there is, or below it. */
export function originOf(
  direction: Direction,
  taken: { lowest: bigint; highest: bigint } | undefined,
): bigint {
  if (direction === 'down') return (taken?.highest ?? HEAD_ROOM) + HEAD_ROOM;
  return taken === undefined ? 0n : taken.lowest - HEAD_ROOM;
}

/** Gives each group the next place from `edge` on, in the order read. */
export function placeBeyond(
  list: ListName,
  groups: readonly RowGroup[],
  edge: bigint,
  direction: Direction,
): readonly PlacedRows[] {
  if (list === 'checkpoints') return groups.map((group) => placedAt(group, BigInt(group.group)));
  const step = direction === 'up' ? STEP : -STEP;
  let pos = edge;
  return groups.map((group) => {
    pos += step;
    return placedAt(group, pos);
  });
}

export function placedAt({ rows, firstSeen }: RowGroup, pos: bigint): PlacedRows {
  return { pos, rows, firstSeen: firstSeen?.time };
}

/**
 * Places for `count` rows strictly between two others, in the order read: as wide apart as usual where
 * there is room for that, else evenly in `part` of the room.
 * @returns undefined where there is no room: move the neighbours first
 */
export function placesBetween(
  from: bigint,
  to: bigint,
  count: number,
  part: 'all' | 'the beginning' = 'all',
): readonly bigint[] | undefined {
  const width = to > from ? to - from : from - to;
  const parts = BigInt(count) + 1n;
  if (width < parts) return undefined;
  const fair = width / (part === 'all' ? parts : parts * ROOM_FOR_MORE);
  const step = fair > STEP ? STEP : fair < 1n ? 1n : fair;
  const signed = to > from ? step : -step;
  return Array.from({ length: count }, (_, index) => from + signed * BigInt(index + 1));
}
