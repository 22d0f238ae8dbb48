/** What every step of one walk shares: its session, its source, its limits and what it has seen. */
import type { Log } from '../core/log.ts';
import type {
  Chain,
  ListSource,
  Page,
  PageCommit,
  PageQuestion,
  WalkHints,
  WalkSession,
  WalkBooks,
} from './ports.ts';
import type { HintWriter } from './hint-writer.ts';
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

export interface WalkContext {
  readonly deps: WalkDeps;
  readonly session: WalkSession;
  readonly signal: AbortSignal;
  readonly tally: Tally;
  readonly meter: ProgressMeter;
  readonly hints: HintWriter;
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

/** @returns the chain as it was written */
export async function commitPage(context: WalkContext, change: PageCommit): Promise<Chain> {
  const chainId = await withCheckpoints(context, () => context.session.commit(change));
  return committed(context, change, chainId);
}

/** @returns undefined where a row was known already; nothing was written then */
export async function commitIfNew(context: WalkContext, change: PageCommit): Promise<Chain | undefined> {
  const chainId = await withCheckpoints(context, () => context.session.commitIfNew(change));
  return chainId === undefined ? undefined : committed(context, change, chainId);
}

async function withCheckpoints<Result>(
  { deps }: WalkContext,
  commit: () => Promise<Result>,
): Promise<Result> {
  await deps.checkpoint?.('committing');
  const result = await commit();
  await deps.checkpoint?.('committed');
  return result;
}

async function committed(context: WalkContext, { page, chain }: PageCommit, chainId: bigint): Promise<Chain> {
  const { deps, session } = context;
  context.meter.add(page);
  const hint = {
    walkId: `${session.walkId}`,
    epoch: session.epoch,
    role: page.role,
    lo: `${chain.lo}`,
    hi: `${chain.hi}`,
  };
  context.hints.write(hint);
  await deps.checkpoint?.('hinted');
  return { ...chain, chainId };
}

export function hintKey(list: string): string {
  return `walk:${list}`;
}
