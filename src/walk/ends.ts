/**
 * The first page of each order. It has no cursor, so nothing overlaps it yet: it either touches the
 * chain at that end by proof, or begins a new chain.
 */
import { askPage, commitPage, PAGE_SIZE_MAX, type WalkContext } from './context.ts';
import { cutPage, type CutPage, type RowGroup } from './groups.ts';
import { checkEnvelope, checkOrder } from './guards.ts';
import { firstKey, lieOf, type Lie } from './lie.ts';
import { makeRoom, placeAfter, placeStrangers, type Placement } from './place.ts';
import { originOf } from './positions.ts';
import type { Chain, ChainDraft, ChainHead, Direction, Page, PlacedRows, Violation } from './ports.ts';
import { noteOnce, troubleOf } from './reader.ts';
import { firstAnchor, nextAnchor, withAnchor } from './stitch.ts';

export interface FirstPage {
  readonly kind: 'page';
  readonly role: 'head' | 'tail';
  readonly page: Page;
  readonly cut: CutPage;
  readonly size: number;
}

export interface Refused {
  readonly kind: 'refused';
  readonly trouble: Violation;
}

/** Asks the first page of an order, larger where one group fills it, smaller where the source says so. */
export async function askFirst(context: WalkContext, role: 'head' | 'tail'): Promise<FirstPage | Refused> {
  let size = context.pageSize;
  for (;;) {
    let page: Page;
    try {
      page = await askPage(context, { newestFirst: role === 'head', size });
    } catch (error) {
      const meaning = troubleOf(error, context, size);
      if (meaning.kind === 'trouble') return { kind: 'refused', trouble: meaning.trouble };
      ({ size } = meaning);
      continue;
    }
    const cut = cutPage(context.session.list, page, size);
    const goesOn = page.hasNextPage || cut.partial !== undefined;
    if (cut.whole.length < 2 && goesOn && page.rows.length > 0 && size < PAGE_SIZE_MAX) {
      size *= 2;
      continue;
    }
    return checked(context, { kind: 'page', role, page, cut, size });
  }
}

async function checked(context: WalkContext, first: FirstPage): Promise<FirstPage | Refused> {
  const { page, cut, role } = first;
  if (page.rows.length === 0 && page.hasNextPage) {
    return { kind: 'refused', trouble: { code: 'EMPTY_PAGE_PROMISES_MORE', meta: { role } } };
  }
  const envelope = checkEnvelope(page);
  if (envelope !== undefined) await noteOnce(context, envelope);
  const order = checkOrder(context.session.list, cut.whole, directionOf(role));
  return order === undefined ? first : { kind: 'refused', trouble: order };
}

/** The order in which a first page is read. */
function directionOf(role: 'head' | 'tail'): Direction {
  return role === 'head' ? 'down' : 'up';
}

/**
 * Stores a first page: above or below the chain that it touches, or as a new chain.
 * @param above for a tail that lies above older rows of ours: the chain that holds them
 * @returns the chain, or what forbids to place the page; its rows are kept without a place then
 */
export async function storeFirst(
  context: WalkContext,
  first: FirstPage,
  chains: readonly Chain[],
  above?: Chain,
): Promise<Chain | Violation> {
  const neighbour = first.role === 'head' ? chains.at(-1) : chains[0];
  const lie = await lieOf(context.session, {
    fresh: first.cut.whole,
    partial: first.cut.partial,
    direction: directionOf(first.role),
    own: undefined,
    neighbour,
  });
  if (lie.kind === 'trouble') return keepUnproven(context, first, lie.trouble);
  if (lie.kind === 'joins') return extend(context, first, lie);
  if (lie.rows.length === 0) {
    const trouble = { code: 'LIST_SHRANK', meta: { role: first.role, rowsServed: first.page.rows.length } };
    return keepUnproven(context, first, trouble);
  }
  const origin = above?.hi ?? originFor(context, directionOf(first.role), chains);
  return begin(context, first, lie.rows.length, origin);
}

async function keepUnproven(context: WalkContext, first: FirstPage, trouble: Violation): Promise<Violation> {
  await context.session.keepUnproven(first.page.rows);
  return trouble;
}

/** The page runs along the chain's edge: what it showed before that lies beyond the edge. */
async function extend(
  context: WalkContext,
  first: FirstPage,
  lie: Extract<Lie, { kind: 'joins' }>,
): Promise<Chain> {
  const { session } = context;
  const { neighbour, strangers } = lie;
  const outward: Direction = first.role === 'head' ? 'up' : 'down';
  const edge = first.role === 'head' ? neighbour.hi : neighbour.lo;
  const placement = await placeWithRoom(context, lie.rows.toReversed(), edge, outward);
  if (strangers.length > 0) {
    await noteOnce(context, {
      code: 'ROWS_INSERTED',
      meta: { role: first.role, groups: strangers.length, keys: [strangers[0]?.group.group] },
    });
  }
  const chain: ChainDraft =
    first.role === 'head'
      ? {
          ...neighbour,
          hi: placement.edge,
          head: headOf(context, first.page),
          top: withAnchor(neighbour.top, firstAnchor(first.cut.whole, context.deps.source.baseUrl)),
        }
      : { ...neighbour, lo: placement.edge, hasTail: true };
  const placed = [...placement.placed, ...placeStrangers(session, strangers)];
  return store(context, first, placed, chain);
}

/** A chain of its own, with a gap between it and the rest. */
async function begin(context: WalkContext, first: FirstPage, groups: number, origin: bigint): Promise<Chain> {
  const { deps } = context;
  const direction = directionOf(first.role);
  const whole = first.cut.whole.slice(0, groups);
  const placement = await placeWithRoom(context, whole, origin, direction);
  if (placement.disordered.length > 0) {
    await noteOnce(context, {
      code: 'ORDER_BROKEN',
      meta: { role: first.role, groups: placement.disordered.length },
    });
  }
  const start = placement.placed[0]?.pos ?? placement.edge;
  const { baseUrl } = deps.source;
  const inward = withAnchor(
    [],
    nextAnchor(whole, { baseUrl, partial: first.cut.whole[groups] ?? first.cut.partial }),
  );
  const chain: ChainDraft =
    first.role === 'head'
      ? {
          chainId: undefined,
          lo: placement.edge,
          hi: start,
          hasTail: false,
          head: headOf(context, first.page),
          bottom: inward,
          top: withAnchor([], firstAnchor(whole, baseUrl)),
        }
      : {
          chainId: undefined,
          lo: start,
          hi: placement.edge,
          hasTail: true,
          head: undefined,
          bottom: [],
          top: inward,
        };
  return store(context, first, placement.placed, chain);
}

/** Beyond an outer edge no chain of this walk lies, so that moving rows there moves none of them. */
async function placeWithRoom(
  { session }: WalkContext,
  groups: readonly RowGroup[],
  edge: bigint,
  direction: Direction,
): Promise<Placement> {
  for (let tries = 1; ; tries += 1) {
    const placement = await placeAfter(session, groups, edge, direction);
    if (!('noRoomBehind' in placement)) return placement;
    await makeRoom(session, placement, direction, tries);
  }
}

/** An audit's chains may lie over others': the rows that it knows keep their places anyway. */
function originFor({ session }: WalkContext, direction: Direction, chains: readonly Chain[]): bigint {
  const before = session.placesBefore;
  const lowest = chains[0]?.lo;
  const highest = chains.at(-1)?.hi;
  const taken =
    lowest === undefined || highest === undefined
      ? before
      : {
          lowest: before !== undefined && before.lowest < lowest ? before.lowest : lowest,
          highest: before !== undefined && before.highest > highest ? before.highest : highest,
        };
  return originOf(direction, taken);
}

async function store(
  context: WalkContext,
  first: FirstPage,
  placed: readonly PlacedRows[],
  chain: ChainDraft,
): Promise<Chain> {
  const { network } = first.cut;
  const stored = await commitPage(context, {
    page: {
      role: first.role,
      after: undefined,
      size: first.size,
      rows: first.page.rows.length,
      firstKey: firstKey(first.cut.whole[0]),
      lastKey: firstKey(first.cut.whole.at(-1)),
      height: first.page.blockHeight,
    },
    placed,
    unplaced: network === undefined ? [] : [network],
    absorbed: [],
    chain,
  });
  if (network !== undefined) context.tally.network = 'stored';
  return stored;
}

function headOf({ session }: WalkContext, page: Page): ChainHead {
  return { walkId: session.walkId, height: page.blockHeight, time: page.blockTime };
}

export function isViolation(result: Chain | Violation): result is Violation {
  return 'code' in result;
}
