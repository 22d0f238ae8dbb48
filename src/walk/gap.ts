/**
 * Closes one gap: the chain below it grows upwards, the chain above it downwards, each one page ahead of
 * the single committer, until one page proves that they overlap. What one side cannot do is left to the
 * other.
 */
import { errorCode } from '../core/errors.ts';
import { Ahead } from './ahead.ts';
import { commitPage, PAGE_SIZE_MAX, type WalkContext } from './context.ts';
import type { RowGroup } from './groups.ts';
import { VERDICT_OF } from './guards.ts';
import type { Stranger } from './join.ts';
import { firstKey, lieOf, type Lie } from './lie.ts';
import { placeAfter, placeStrangers } from './place.ts';
import { noteOnce, readDirection, type ReaderEvent, type Stretch } from './reader.ts';
import type { Anchor, Chain, ChainDraft, Direction, Violation } from './ports.ts';
import { isVerifiable, nextAnchor, withAnchor } from './stitch.ts';

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
  const { stretch } = event;
  const lie = await lieOf(context.session, {
    fresh: stretch.fresh,
    partial: stretch.cut.partial,
    direction: side.direction,
    own: side.chain,
    neighbour: other?.chain,
  });
  if (lie.kind === 'trouble') return climb(context, side, lie.trouble, false);
  try {
    return await advance(context, side, stretch, lie);
  } catch (error) {
    // The books hold a page with this very anchor and size: the source leads in a circle.
    if (errorCode(error) !== 'CURSOR_CYCLE') throw error;
    return climb(context, side, { code: 'CURSOR_CYCLE', meta: { at: side.edgeKey } }, true);
  }
}

async function advance(
  context: WalkContext,
  side: Side,
  stretch: Stretch,
  lie: Exclude<Lie, { kind: 'trouble' }>,
): Promise<Omit<JoinedGap, 'isTwoEnded'> | undefined> {
  const { session } = context;
  const { direction } = side;
  if (lie.kind === 'short' && lie.rows.length === 0) {
    if (stretch.page.hasNextPage && stretch.size * 2 <= PAGE_SIZE_MAX) await side.restart(stretch.size * 2);
    else await climb(context, side, { code: 'OVERLAP_TOO_SHORT', meta: { at: side.edgeKey } }, false);
    return undefined;
  }
  const edge = direction === 'up' ? side.chain.hi : side.chain.lo;
  const placement = await placeAfter(session, lie.rows, edge, direction);
  await noteDisorder(context, direction, placement.disordered);
  const strangers = lie.kind === 'joins' ? lie.strangers : [];
  await noteStrangers(context, direction, strangers);
  const isAllHeld = lie.rows.at(-1) === stretch.cut.whole.at(-1);
  const next = isAllHeld ? stretch.next : anchorBehind(context, side, stretch, lie.rows);
  const grown = grow(side.chain, direction, placement.edge, next);
  const draft = lie.kind === 'joins' ? unite(grown, lie.neighbour) : grown;
  const chainId = await commitPage(context, {
    page: {
      role: direction,
      after: stretch.after,
      size: stretch.size,
      rows: stretch.page.rows.length,
      firstKey: firstKey(stretch.fresh[0]),
      lastKey: firstKey(stretch.fresh.at(-1)),
      height: stretch.page.blockHeight,
    },
    placed: [...placement.placed, ...placeStrangers(session, strangers)],
    unplaced: [],
    absorbed: lie.kind === 'joins' ? [lie.neighbour.chainId] : [],
    chain: draft,
  });
  const chain = { ...draft, chainId };
  if (lie.kind === 'joins') {
    return { joined: true, chain, stretch, direction, met: lie.met, overlap: lie.overlap, seamKey: side.edgeKey };
  }
  side.advanced(chain, lie.rows);
  // Where less than the page is held, or the reader waits for the other side, it starts again from the edge.
  if (!isAllHeld || stretch.mayJoin) await side.restart();
  return undefined;
}

async function noteDisorder(context: WalkContext, direction: Direction, keys: readonly string[]): Promise<void> {
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
  side.finish(trouble);
  return undefined;
}

/** One side of a gap: its chain, its reader, and how far up the ladder it is. */
class Side implements AsyncDisposable {
  readonly direction: Direction;
  chain: Chain;
  commits = 0;
  isOver = false;
  reason: Violation = { code: 'NOT_ASKED', meta: {} };
  readonly #context: WalkContext;
  #ahead: Ahead<ReaderEvent> | undefined;
  #steps = 0;
  #size: number | undefined;
  /** Groups of the edge and of the last pages: where the other side may meet this one. */
  #recent = new Set<string>();

  constructor(context: WalkContext, direction: Direction, chain: Chain) {
    this.#context = context;
    this.direction = direction;
    this.chain = chain;
    for (const { held } of this.anchors) for (const { group } of held) this.#recent.add(group);
  }

  /** Those that this node gave and that must show something held. */
  get anchors(): readonly Anchor[] {
    const all = this.direction === 'up' ? this.chain.top : this.chain.bottom;
    const { baseUrl } = this.#context.deps.source;
    return all.filter((anchor) => anchor.baseUrl === baseUrl && isVerifiable(anchor));
  }

  get edgeKey(): string | undefined {
    const held = this.anchors.at(-1)?.held.at(-1);
    return held?.keys[0];
  }

  start(mayJoin: (groups: readonly RowGroup[]) => boolean): void {
    if (this.#ahead !== undefined) return;
    const back = Math.max(this.#steps - 1, 0);
    const anchor = this.anchors.at(-1 - back);
    if (anchor === undefined) {
      this.finish({ code: 'NO_ANCHOR', meta: { direction: this.direction } });
      return;
    }
    const stop = new AbortController();
    const { pageSize } = this.#context;
    const events = readDirection(this.#context, {
      anchor,
      // Stepped back, a page must reach over what is held already.
      size: this.#size ?? Math.min(pageSize * (back + 1), PAGE_SIZE_MAX),
      direction: this.direction,
      mayJoin,
      signal: AbortSignal.any([this.#context.signal, stop.signal]),
    });
    this.#size = undefined;
    this.#ahead = new Ahead(events, stop);
  }

  /** Whether a page of the other side may reach this chain. */
  isNear(groups: readonly RowGroup[]): boolean {
    return groups.some(({ group }) => this.#recent.has(group));
  }

  async ready(): Promise<this> {
    await this.#ahead?.peek();
    return this;
  }

  async take(): Promise<ReaderEvent | undefined> {
    return this.#ahead?.peek();
  }

  advanced(chain: Chain, rows: readonly RowGroup[]): void {
    this.chain = chain;
    this.commits += 1;
    this.#steps = 0;
    this.#recent = new Set([...rows.map(({ group }) => group), ...(this.anchors.at(-1)?.held ?? []).map(({ group }) => group)]);
    this.#ahead?.release();
  }

  nextStep(): 'ask again' | 'step back' | 'leave it to the other side' {
    this.#steps += 1;
    if (this.#steps === 1) return 'ask again';
    return this.#steps <= this.anchors.length ? 'step back' : 'leave it to the other side';
  }

  /** Throws away what was read ahead; the next start reads from the chain's edge as it is now. */
  async restart(size?: number): Promise<undefined> {
    this.#size = size;
    const ahead = this.#ahead;
    this.#ahead = undefined;
    await ahead?.[Symbol.asyncDispose]();
    return undefined;
  }

  finish(reason: Violation): void {
    this.isOver = true;
    this.reason = reason;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.restart();
  }
}
