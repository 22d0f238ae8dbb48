/** Which places rows get: beyond an edge, in the middle of proven rows, or, in an audit, those they have. */
import { PermanentError } from '../core/errors.ts';
import type { RowGroup } from './groups.ts';
import type { Stranger } from './join.ts';
import { placeBeyond, placedAt, placesBetween } from './positions.ts';
import type { Direction, PlacedRows, WalkSession } from './ports.ts';

type PlaceSession = Pick<WalkSession, 'list' | 'kind' | 'formerPlaces' | 'nextPlace'>;

export interface Placement {
  readonly placed: readonly PlacedRows[];
  /** The place of the last of them, in the order read. */
  readonly edge: bigint;
  /** Rows that an audit met out of their order. They keep their place. */
  readonly disordered: readonly string[];
}

/** Between two rows there is no place left: some must move before the page can be placed. */
export interface NoRoom {
  readonly noRoomBehind: bigint;
}

/** How many rows are moved to make room, eight times as many at each try. */
const SPREAD_ROWS = 64;
const SPREAD_TRIES_MAX = 5;

/** Places for groups that follow `edge` in the order read. */
export async function placeAfter(
  session: PlaceSession,
  groups: readonly RowGroup[],
  edge: bigint,
  direction: Direction,
): Promise<Placement | NoRoom> {
  if (session.kind === 'audit' && session.list === 'parties') {
    return placeInAudit(session, groups, edge, direction);
  }
  const placed = placeBeyond(session.list, groups, edge, direction);
  return { placed, edge: placed.at(-1)?.pos ?? edge, disordered: [] };
}

/** Moves rows so that the page can be placed; the chains must be read again. */
export async function makeRoom(
  session: Pick<WalkSession, 'list' | 'spread'>,
  { noRoomBehind }: NoRoom,
  direction: Direction,
  tries: number,
): Promise<void> {
  if (tries > SPREAD_TRIES_MAX) {
    throw new PermanentError(
      `Cannot place a page of ${session.list} behind ${noRoomBehind}: moving its neighbours made no room; run an audit again`,
      { code: 'NO_ROOM', meta: { behind: `${noRoomBehind}` } },
    );
  }
  await session.spread(noRoomBehind, direction, SPREAD_ROWS * 8 ** (tries - 1));
}

/** An audit leaves every row where it is; what was missed goes between its neighbours. */
async function placeInAudit(
  session: PlaceSession,
  groups: readonly RowGroup[],
  start: bigint,
  direction: Direction,
): Promise<Placement | NoRoom> {
  const former = await session.formerPlaces(groups.map(({ group }) => group));
  const placed: PlacedRows[] = [];
  const disordered: string[] = [];
  let edge = start;
  for (const run of runsOf(groups, former)) {
    const [first] = run;
    const isLast = run.at(-1) === groups.at(-1);
    const pos = first === undefined ? undefined : former.get(first.group);
    if (first !== undefined && pos !== undefined) {
      const isOnward = direction === 'up' ? pos > edge : pos < edge;
      if (isOnward) edge = pos;
      else disordered.push(first.group);
      placed.push(placedAt(first, pos));
      continue;
    }
    const missed = await placeMissed(session, run, { from: edge, direction, isLast });
    if (missed === undefined) return { noRoomBehind: edge };
    placed.push(...missed);
    edge = missed.at(-1)?.pos ?? edge;
  }
  return { placed, edge, disordered };
}

/** Known groups one by one, unknown ones in runs. */
function runsOf(groups: readonly RowGroup[], former: ReadonlyMap<string, bigint>): readonly RowGroup[][] {
  const runs: RowGroup[][] = [];
  let isOpen = false;
  for (const group of groups) {
    const isKnown = former.has(group.group);
    if (isOpen && !isKnown) runs.at(-1)?.push(group);
    else runs.push([group]);
    isOpen = !isKnown;
  }
  return runs;
}

async function placeMissed(
  session: PlaceSession,
  run: readonly RowGroup[],
  { from, direction, isLast }: { from: bigint; direction: Direction; isLast: boolean },
): Promise<readonly PlacedRows[] | undefined> {
  const to = await session.nextPlace(from, direction);
  if (to === undefined) return placeBeyond(session.list, run, from, direction);
  const places = placesBetween(from, to, run.length, isLast ? 'the beginning' : 'all');
  return places && run.map((group, index) => placedAt(group, places[index] ?? from));
}

/** Places for groups that a page showed between two rows which were taken for neighbours. */
export function placeStrangers(session: PlaceSession, strangers: readonly Stranger[]): readonly PlacedRows[] {
  const placed: PlacedRows[] = [];
  for (const { group, outer, inner } of strangers) {
    const from = outer?.pos ?? inner?.pos;
    const to = inner?.pos ?? outer?.pos;
    if (from === undefined || to === undefined) continue;
    if (session.list === 'checkpoints') {
      placed.push(placedAt(group, BigInt(group.group)));
      continue;
    }
    const before = placed.at(-1)?.pos;
    const follows =
      before !== undefined && (from < to ? before > from && before < to : before < from && before > to);
    const [pos] = placesBetween(follows ? before : from, to, 1) ?? [];
    if (pos !== undefined) placed.push(placedAt(group, pos));
  }
  return placed;
}
