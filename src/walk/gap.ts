/**
 * Closes one gap: the chain below it grows upwards, the chain above it downwards, until one page proves
 * that they overlap. What one side cannot do is left to the other. Each side asks for its next page when the
 * single committer takes the one before, so that at most three pages are not committed: the one in flight
 * of each side, and the one in the committer's hand.
 */
import { errorCode } from '../core/errors.ts';
import { commitIfNew, commitPage, type WalkContext } from './context.ts';
import type { RowGroup } from './groups.ts';
import { VERDICT_OF } from './guards.ts';
import type { Stranger } from './join.ts';
import { firstKey, lieOf, type Lie } from './lie.ts';
import { makeRoom, placeAfter, placeStrangers } from './place.ts';
import { noteOnce, type ReaderEvent, type Stretch } from './reader.ts';
import { Side } from './side.ts';
import type { Anchor, Chain, ChainDraft, CommittedPage, Direction, Violation } from './ports.ts';
import { placeBeyond } from './positions.ts';
import { nextAnchor, withAnchor } from './stitch.ts';

export interface JoinedGap {
  readonly joined: true;
  readonly chain: Chain;
  readonly stretch: Stretch;
  readonly direction: Direction;
  readonly met: readonly RowGroup[];
  readonly overlap: number;
  /** The last key of the side whose page proved it. */
  readonly seamKey: string | undefined;
  readonly isTwoEnded: boolean;
}

export interface OpenGap {
  readonly joined: false;
  readonly lower: Chain | undefined;
  readonly upper: Chain | undefined;
  readonly commits: number;
  /** Why each side stopped. */
  readonly reasons: readonly { readonly direction: Direction; readonly trouble: Violation }[];
}

const KEYS_SHOWN_MAX = 5;
/** How large a page may become, in pages, to reach over what is held to something new. */
const REACH_PAGES_MAX = 16;

/** The chains on both sides; where there is none yet, that side does not work. */
export interface Gap {
  readonly lower: Chain | undefined;
  readonly upper: Chain | undefined;
}

export interface GapLimits {
  readonly directions: readonly Direction[];
  /** Stops after so many pages, to look whether it goes on as expected; nothing is read ahead then. */
  readonly commitsMax?: number;
}

const BOTH_ENDS: GapLimits = { directions: ['up', 'down'] };

/** @throws FencedError, UnreachableError and whatever concerns the whole walk */
export async function closeGap(
  context: WalkContext,
  gap: Gap,
  limits: GapLimits = BOTH_ENDS,
): Promise<JoinedGap | OpenGap> {
  const up = gap.lower === undefined ? undefined : new Side(context, 'up', gap.lower);
  const down = gap.upper === undefined ? undefined : new Side(context, 'down', gap.upper);
  const sides = [up, down].filter((side) => side !== undefined);
  const working = sides.filter(({ direction }) => limits.directions.includes(direction));
  const isLookingOnly = limits.commitsMax !== undefined;
  const otherOf = (side: Side): Side | undefined => (side === up ? down : up);
  await using stack = new AsyncDisposableStack();
  for (const side of sides) stack.use(side);
  for (;;) {
    for (const side of working) {
      if (!side.isOver) side.start((groups) => isLookingOnly || (otherOf(side)?.isNear(groups) ?? false));
    }
    // The side with fewer commits first, so that neither starves the other.
    const active = working
      .filter(({ isOver }) => !isOver)
      .toSorted((left, right) => left.commits - right.commits);
    const isEnough = sides.some(({ commits }) => commits >= (limits.commitsMax ?? Infinity));
    if (active.length === 0 || isEnough) break;
    const side = await Promise.race(active.map((each) => each.ready()));
    const joined = await work(context, side, otherOf(side), await side.take());
    if (joined !== undefined) return { ...joined, isTwoEnded: sides.every(({ commits }) => commits > 0) };
  }
  return {
    joined: false,
    lower: up?.chain,
    upper: down?.chain,
    commits: sides.reduce((sum, { commits }) => sum + commits, 0),
    reasons: working.map(({ direction, reason }) => ({ direction, trouble: reason })),
  };
}

async function work(
  context: WalkContext,
  side: Side,
  other: Side | undefined,
  event: ReaderEvent | undefined,
): Promise<Omit<JoinedGap, 'isTwoEnded'> | undefined> {
  if (event === undefined) return side.restart();
  if (event.kind === 'end') {
    side.finish({ code: 'END_WITHOUT_MEETING', meta: { at: side.edgeKey } });
    return undefined;
  }
  if (event.kind === 'trouble') {
    return climb(context, side, event.trouble, event.isFinal);
  }
  try {
    return await hold(context, side, other, event.stretch);
  } catch (error) {
    // The books hold a page with this very anchor and size: the source leads in a circle.
    if (errorCode(error) !== 'CURSOR_CYCLE') throw error;
    return climb(context, side, { code: 'CURSOR_CYCLE', meta: { at: side.edgeKey } }, true);
  }
}

/** Looks how a stretch lies, and commits what it proves. */
async function hold(
  context: WalkContext,
  side: Side,
  other: Side | undefined,
  stretch: Stretch,
): Promise<Omit<JoinedGap, 'isTwoEnded'> | undefined> {
  if (await extendUnseen(context, side, stretch)) return undefined;
  const lie = await lieOf(context.session, {
    fresh: stretch.fresh,
    partial: stretch.cut.partial,
    direction: side.direction,
    own: side.chain,
    neighbour: other?.chain,
  });
  if (lie.kind !== 'trouble') return advance(context, side, other, stretch, lie);
  await climb(context, side, lie.trouble, false);
  // What was seen is kept; where it belongs was not proven.
  if (side.isOver) await context.session.keepUnproven(stretch.fresh.flatMap(({ rows }) => rows));
  return undefined;
}

/**
 * The common page, far from the other side: all its rows are new. That is taken for granted and checked by
 * the commit itself, which spares a look-up.
 * @returns whether it was so; else nothing was done
 */
async function extendUnseen(context: WalkContext, side: Side, stretch: Stretch): Promise<boolean> {
  const { list, kind } = context.session;
  if (stretch.mayJoin || side.isSteppedBack || list === 'checkpoints' || kind === 'audit') return false;
  const { direction, chain } = side;
  const placed = placeBeyond(list, stretch.fresh, direction === 'up' ? chain.hi : chain.lo, direction);
  const edge = placed.at(-1)?.pos;
  if (edge === undefined) return false;
  const extended = await commitIfNew(context, {
    page: pageOf(stretch, direction),
    placed,
    unplaced: [],
    absorbed: [],
    chain: grow(chain, direction, edge, stretch.next),
  });
  if (extended === undefined) return false;
  side.advanced(extended);
  return true;
}

function pageOf({ after, size, page, fresh }: Stretch, role: Direction): CommittedPage {
  return {
    role,
    after,
    size,
    rows: page.rows.length,
    firstKey: firstKey(fresh[0]),
    lastKey: firstKey(fresh.at(-1)),
    height: page.blockHeight,
  };
}

async function advance(
  context: WalkContext,
  side: Side,
  other: Side | undefined,
  stretch: Stretch,
  lie: Exclude<Lie, { kind: 'trouble' }>,
): Promise<Omit<JoinedGap, 'isTwoEnded'> | undefined> {
  const { session } = context;
  const { direction } = side;
  if (lie.kind === 'short' && lie.rows.length === 0) {
    const isReachable = stretch.page.hasNextPage && stretch.size < context.pageSize * REACH_PAGES_MAX;
    if (isReachable) await side.restart(stretch.size * 2);
    else await climb(context, side, { code: 'OVERLAP_TOO_SHORT', meta: { at: side.edgeKey } }, false);
    return undefined;
  }
  const edge = direction === 'up' ? side.chain.hi : side.chain.lo;
  const placement = await placeAfter(session, lie.rows, edge, direction);
  if ('noRoomBehind' in placement) {
    await makeRoom(session, placement, direction, side.nextSpread());
    await other?.reload();
    return side.restart();
  }
  await noteDisorder(context, direction, placement.disordered);
  const strangers = lie.kind === 'joins' ? lie.strangers : [];
  await noteStrangers(context, direction, strangers);
  const isAllHeld = lie.rows.at(-1) === stretch.cut.whole.at(-1);
  const next = isAllHeld ? stretch.next : anchorBehind(context, side, stretch, lie.rows);
  const grown = grow(side.chain, direction, placement.edge, next);
  const draft = lie.kind === 'joins' ? unite(grown, lie.neighbour) : grown;
  const chain = await commitPage(context, {
    page: pageOf(stretch, direction),
    placed: [...placement.placed, ...placeStrangers(session, strangers)],
    unplaced: [],
    absorbed: lie.kind === 'joins' ? [lie.neighbour.chainId] : [],
    chain: draft,
  });
  if (lie.kind === 'joins') {
    return {
      joined: true,
      chain,
      stretch,
      direction,
      met: lie.met,
      overlap: lie.overlap,
      seamKey: side.edgeKey,
    };
  }
  side.advanced(chain);
  // Where less than the page is held, or the reader waits for the other side, it starts again from the edge.
  if (!isAllHeld || stretch.mayJoin) await side.restart();
  return undefined;
}

async function noteDisorder(
  context: WalkContext,
  direction: Direction,
  keys: readonly string[],
): Promise<void> {
  if (keys.length === 0) return;
  await noteOnce(context, {
    code: 'ORDER_BROKEN',
    meta: { direction, groups: keys.length, keys: keys.slice(0, KEYS_SHOWN_MAX) },
  });
}

async function noteStrangers(
  context: WalkContext,
  direction: Direction,
  strangers: readonly Stranger[],
): Promise<void> {
  if (strangers.length === 0) return;
  const keys = strangers.slice(0, KEYS_SHOWN_MAX).map(({ group }) => group.group);
  await noteOnce(context, { code: 'ROWS_INSERTED', meta: { direction, groups: strangers.length, keys } });
}

/** The anchor where only the first `rows` of the page's fresh groups are held. */
function anchorBehind(
  context: WalkContext,
  side: Side,
  stretch: Stretch,
  rows: readonly RowGroup[],
): Anchor | undefined {
  const last = rows.at(-1);
  const end = last === undefined ? -1 : stretch.cut.whole.indexOf(last);
  return nextAnchor(stretch.cut.whole.slice(0, end + 1), {
    baseUrl: context.deps.source.baseUrl,
    edge: side.anchors.at(-1)?.held.at(-1),
    partial: stretch.cut.whole[end + 1],
  });
}

function grow(chain: Chain, direction: Direction, edge: bigint, next: Anchor | undefined): Chain {
  return direction === 'up'
    ? { ...chain, hi: edge, top: withAnchor(chain.top, next) }
    : { ...chain, lo: edge, bottom: withAnchor(chain.bottom, next) };
}

/** One chain in the place of two that overlap. */
export function unite(one: Chain, two: Chain): ChainDraft {
  const [lower, upper] = one.lo <= two.lo ? [one, two] : [two, one];
  const top = lower.hi > upper.hi ? lower : upper;
  return {
    chainId: one.chainId,
    lo: lower.lo,
    hi: top.hi,
    hasTail: lower.hasTail,
    head: top.head,
    bottom: lower.bottom,
    top: top.top,
  };
}

/** The ladder: ask the same again, step the anchor back, leave it to the other side. */
async function climb(
  context: WalkContext,
  side: Side,
  trouble: Violation,
  isFinal: boolean,
): Promise<undefined> {
  const step = isFinal ? 'leave it to the other side' : side.nextStep();
  context.tally.step({ role: side.direction, code: trouble.code, step, meta: trouble.meta });
  context.deps.log.warn(
    { list: context.session.list, direction: side.direction, code: trouble.code, step, ...trouble.meta },
    'Page does not continue the list',
  );
  if (step !== 'leave it to the other side') return side.restart();
  if (VERDICT_OF[trouble.code] !== undefined) await noteOnce(context, trouble);
  // Where the ladder ended, its anchors are no good in the rest of this walk either.
  if (!isFinal) for (const { cursor } of side.anchors) context.tally.lostAnchors.add(cursor);
  side.finish(trouble);
  return undefined;
}
