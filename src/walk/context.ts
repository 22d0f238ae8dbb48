/** What every step of one walk shares: its session, its source, its limits and what it has seen. */
import type { Log } from '../core/log.ts';
import type {
  ListSource,
  Page,
  PageCommit,
  PageQuestion,
  WalkHints,
  WalkSession,
  WalkBooks,
} from './ports.ts';
import type { ProgressMeter } from './progress.ts';
import type { Tally } from './tally.ts';

/** Tests stop, kill or disturb a walk at these places. */
export type CheckpointLabel =
  | 'asking'
  | 'received'
  | 'committing'
  | 'committed'
  | 'hinted'
  | 'claiming'
  | 'claimed';

export interface WalkDeps {
  readonly source: ListSource;
  readonly books: WalkBooks;
  readonly hints: WalkHints;
  readonly log: Log;
  readonly checkpoint?: (label: CheckpointLabel) => Promise<void> | void;
}

/** Smaller pages cannot show two groups again and bring a new one. */
export const PAGE_SIZE_MIN = 4;
/** A group that does not fit in a page of this size is not read whole. */
export const PAGE_SIZE_MAX = 1 << 17;
const HINT_TTL_MS = 30 * 86_400_000;

export interface WalkContext {
  readonly deps: WalkDeps;
  readonly session: WalkSession;
  readonly signal: AbortSignal;
  readonly tally: Tally;
  readonly meter: ProgressMeter;
  /** Effective page size; halved where the source refuses larger ones. */
  pageSize: number;
}

export async function askPage(
  context: WalkContext,
  question: Omit<PageQuestion, 'list'>,
  signal: AbortSignal = context.signal,
): Promise<Page> {
  const { deps, session, tally } = context;
  await deps.checkpoint?.('asking');
  tally.requests += 1;
  const page = await deps.source.page({ list: session.list, ...question }, signal);
  await deps.checkpoint?.('received');
  tally.sawHeight(page);
  return page;
}

/** @returns the id of the chain that was written */
export async function commitPage(context: WalkContext, change: PageCommit): Promise<bigint> {
  const { deps, session } = context;
  await deps.checkpoint?.('committing');
  const chainId = await session.commit(change);
  await deps.checkpoint?.('committed');
  context.meter.add(change.page);
  const { lo, hi } = change.chain ?? {};
  const hint = {
    walkId: `${session.walkId}`,
    epoch: session.epoch,
    role: change.page.role,
    lo: `${lo}`,
    hi: `${hi}`,
  };
  // A lost hint costs nothing; its store says when it is away.
  await deps.hints.set(hintKey(session.list), hint, HINT_TTL_MS).catch(() => undefined);
  await deps.checkpoint?.('hinted');
  return chainId;
}

export function hintKey(list: string): string {
  return `walk:${list}`;
}
