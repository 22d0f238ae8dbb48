/**
 * How the fresh groups of a page lie: new, along the neighbouring chain, or where they must not be.
 * Being known proves nothing; only a place in a chain of this list counts, and only at that chain's edge.
 */
import { keysOf, type RowGroup } from './groups.ts';
import { runAlong, type Stranger } from './join.ts';
import type { Chain, Direction, PlacedGroup, Violation, WalkSession } from './ports.ts';

const KEYS_SHOWN_MAX = 5;

export type Lie =
  /** All of `rows` are new and follow the edge. */
  | { readonly kind: 'extends'; readonly rows: readonly RowGroup[] }
  /** `rows` are new, and what follows them runs along the neighbour: proven to be one chain. */
  | {
      readonly kind: 'joins';
      readonly rows: readonly RowGroup[];
      /** What the page showed of the neighbour, its edge first. */
      readonly met: readonly RowGroup[];
      readonly neighbour: Chain;
      readonly strangers: readonly Stranger[];
      readonly overlap: number;
    }
  /** The page ends too early, to prove a meeting or to show anything new; `rows` are new and follow the edge. */
  | { readonly kind: 'short'; readonly rows: readonly RowGroup[] }
  | { readonly kind: 'trouble'; readonly trouble: Violation };

export interface LieQuestion {
  readonly fresh: readonly RowGroup[];
  readonly partial: RowGroup | undefined;
  readonly direction: Direction;
  /** The chain that is being read on, if this is no first page. */
  readonly own: Chain | undefined;
  /** The chain that must be met next in this direction, if there is one. */
  readonly neighbour: Chain | undefined;
}

export async function lieOf(
  session: Pick<WalkSession, 'locate' | 'edge'>,
  question: LieQuestion,
): Promise<Lie> {
  const { own, neighbour, direction } = question;
  const places = await session.locate(question.fresh.map(({ group }) => group));
  const isIn = (chain: Chain | undefined, { group }: RowGroup): boolean => {
    const pos = places.get(group);
    return chain !== undefined && pos !== undefined && chain.lo <= pos && pos <= chain.hi;
  };
  const repeated = question.fresh.findIndex((group) => !isIn(own, group));
  const known = repeated === -1 ? question.fresh.length : repeated;
  const cycle = await checkRepeated(session, question, known);
  if (cycle !== undefined) return { kind: 'trouble', trouble: cycle };
  if (known === question.fresh.length) return { kind: 'short', rows: [] };
  const beyond = question.fresh.slice(known);
  const at = beyond.findIndex(({ group }) => places.has(group));
  if (at === -1) return { kind: 'extends', rows: beyond };
  const rows = beyond.slice(0, at);
  const shown = beyond.slice(at);
  const [first] = shown;
  if (first === undefined || isIn(own, first)) return trouble('CURSOR_CYCLE', direction, shown);
  if (neighbour === undefined || !isIn(neighbour, first))
    return trouble('ROWS_PASSED_OVER', direction, shown);
  const end = direction === 'up' ? 'bottom' : 'top';
  const edge = await session.edge(neighbour, end, shown.length + 1);
  const isWholeChain = edge.length <= shown.length;
  const run = runAlong(shown, edge, { partial: question.partial, isWholeChain });
  if (run.missing.length > 0) return trouble('ROWS_PASSED_OVER', direction, run.missing.map(asShown));
  if (!run.isProof) return { kind: 'short', rows };
  return { kind: 'joins', rows, met: shown, neighbour, strangers: run.strangers, overlap: run.matched };
}

/** After a step back the page begins with rows that are held: they must lead up to the edge. */
async function checkRepeated(
  session: Pick<WalkSession, 'edge'>,
  { own, direction, fresh }: LieQuestion,
  known: number,
): Promise<Violation | undefined> {
  if (own === undefined || known === 0) return undefined;
  const edge = await session.edge(own, direction === 'up' ? 'top' : 'bottom', known);
  const outward = edge.toReversed();
  const leadsToEdge = outward.every(({ group }, index) => fresh[index]?.group === group);
  if (leadsToEdge && outward.length === known) return undefined;
  return violation('CURSOR_CYCLE', direction, fresh.slice(0, known));
}

function asShown({ group }: PlacedGroup): Pick<RowGroup, 'group'> {
  return { group };
}

function trouble(code: string, direction: Direction, groups: readonly Pick<RowGroup, 'group'>[]): Lie {
  return { kind: 'trouble', trouble: violation(code, direction, groups) };
}

function violation(
  code: string,
  direction: Direction,
  groups: readonly Pick<RowGroup, 'group'>[],
): Violation {
  const keys = groups.slice(0, KEYS_SHOWN_MAX).map(({ group }) => group);
  return { code, meta: { direction, groups: groups.length, keys } };
}

/** For evidence: the first key of a group. */
export function firstKey(group: RowGroup | undefined): string | undefined {
  return group === undefined ? undefined : keysOf(group).keys[0];
}
