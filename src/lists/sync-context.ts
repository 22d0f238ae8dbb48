/**
 * The state shared by all steps of a sync: its session, source, limits and
 * observations, and the evidence for its verdict.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { PermanentError } from '../errors/errors.ts';
import { toStorableJson } from '../json/json-value.ts';
import { formatInstant } from '../time/time.ts';
import type { VerdictWithEvidence } from '../errors/verdict.ts';
import { checkPage, doubt, DoubtError, SourceBehind } from './page-checks.ts';
import type {
  ListName,
  ListSource,
  Page,
  PageRequest,
  ResumePointStore,
  SyncRequest,
} from './ports.ts';
import type { ResumedFrom, ResumePoints } from './resume-point.ts';
import type { AuditReport } from './store/audit.ts';
import type { SourceHead } from './store/generations.ts';
import type { ListSituation } from './store/list-state.ts';
import type { ListSession, ListStore } from './store/list-store.ts';

export type SyncProgress = ReturnType<typeof measureProgress>;

/** The steps of a sync at which tests can stop, kill or disturb it. */
export type Failpoint =
  | 'asking'
  | 'received'
  | 'committing'
  | 'committed'
  | 'remembered'
  | 'claiming'
  | 'claimed';

export interface SyncDeps {
  readonly source: ListSource;
  readonly store: Pick<ListStore, 'open' | 'keepParty'>;
  readonly resumePoints: ResumePointStore;
  readonly onProgress: (progress: SyncProgress) => void;
  readonly failpoint?: (step: Failpoint) => Promise<void> | void;
  /** Limits beyond which a list that shows no end is abandoned. */
  readonly ceiling?: typeof CEILING;
  /**
   * How long to pause, in milliseconds, before rows that another page has shown are
   * requested again.
   */
  readonly pauseMs?: number;
}

const CEILING = { rows: 50_000_000, requests: 2_000_000 };

export interface SyncContext
  extends SyncRequest, Omit<SyncDeps, 'resumePoints'> {
  readonly session: ListSession;
  readonly resumePoints: ResumePoints;
  readonly signal: AbortSignal;
  readonly tally: Tally;
}

/**
 * How many confirmed rows the source no longer shows: those at the oldest end of the list
 * are `pruned`, all others `gone`.
 */
type LostRows = Pick<AuditReport, 'gone' | 'pruned'>;

/** Counts the requests and observations of one sync. */
export class Tally {
  /** `because` is the reason for rereading the whole list. */
  mode: {
    readonly kind: 'first reading' | 'increment' | 'audit';
    readonly because?: string;
  } = {
    kind: 'increment',
  };
  resumedFrom: ResumedFrom | undefined;
  requests = 0;
  pages = 0;
  /** How many new rows the current reading has found. */
  newRows = 0;
  /** How many new rows the earlier readings of this sync have found. */
  #newRowsBefore = 0n;
  /** How many stored rows the earlier readings of this sync no longer showed. */
  #lostBefore: LostRows = { gone: 0n, pruned: 0n };
  /** How many times this sync has read the list, including the current reading. */
  readings = 1;
  head: SourceHead = { blockHeight: undefined, blockTime: undefined };
  /** The highest block for which either list of this network was claimed complete. */
  claimedHeight: bigint | undefined;
  /** The highest block that any response in this sync has reported. */
  seenHeight: bigint | undefined;
  readonly warnings: string[] = [];
  network: 'stored' | undefined;
  /** A sync first reads the list; then the source must show that the list ends there. */
  phase: 'reading' | 'proving the end' = 'reading';
  readonly startedMs = performance.now();

  /**
   * Begins the next reading of this sync.
   * @param audit the report of the last reading; undefined if that was the list's first
   *   reading
   */
  beginNextReading(audit: AuditReport | undefined): void {
    this.#newRowsBefore = this.countNew(audit);
    if (audit !== undefined) this.#lostBefore = this.countLost(audit);
    this.newRows = 0;
    this.readings += 1;
    this.phase = 'reading';
  }

  /** Returns how many of the rows were not stored when the sync began. */
  countNew(audit: AuditReport | undefined): bigint {
    const inThisReading =
      audit === undefined ? BigInt(this.newRows) : audit.served - audit.common;
    return this.#newRowsBefore + inThisReading;
  }

  /**
   * Returns how many of the rows that were stored when the sync began are no longer
   * shown. A row that an earlier reading did not show, and this one does, is `missed`.
   */
  countLost({ gone, pruned, missed }: AuditReport): LostRows {
    const before = this.#lostBefore;
    const isBack = missed < before.gone ? missed : before.gone;
    return {
      gone: gone + before.gone - isBack,
      pruned: pruned + before.pruned,
    };
  }

  warn(text: string): void {
    if (!this.warnings.includes(text) && this.warnings.length < 20)
      this.warnings.push(text);
  }
}

/**
 * Requests a page, and requests it again if the source contradicts itself, because a
 * transient error is not a reason for doubt.
 * @throws DoubtError if the second response contradicts itself too
 */
export async function askPage(
  context: SyncContext,
  question: Omit<PageRequest, 'list'>,
): Promise<Page> {
  const { source, list, tally, signal, failpoint } = context;
  let isAgain = false;
  let behind = 0;
  for (;;) {
    checkCeiling(context, 'requests', tally.requests + 1);
    tally.requests += 1;
    await failpoint?.('asking');
    try {
      const page = await source.page({ list, ...question }, signal);
      await failpoint?.('received');
      const claimed = heightAhead(page, question, tally);
      if (claimed !== undefined) {
        behind += 1;
        await waitForNextNode(context, page, claimed, behind);
        continue;
      }
      const { blockHeight, blockTime } = page;
      if (blockHeight !== undefined && question.newestFirst)
        tally.head = { blockHeight, blockTime };
      checkPage(list, page);
      return page;
    } catch (error) {
      const fault = asDoubt(error);
      if (fault === undefined || isAgain) throw fault ?? error;
      isAgain = true;
      tally.warn(`${fault.code}: the page was requested again`);
    }
  }
}

/**
 * Maximum number of requests for a page while a node behind the source's address lags.
 */
const BEHIND_ATTEMPTS_MAX = 6;
const BEHIND_PAUSE_MS = 500;

/**
 * Finds the block that a response should have reached. Several nodes may share one
 * address. A response from below the highest claim would lack rows that are stored. The
 * newest page must also not be older than the pages before it.
 * @returns undefined if the response has reached that block, or if the source reports no
 *   blocks
 */
function heightAhead(
  { blockHeight }: Page,
  { newestFirst, fromEnd }: Omit<PageRequest, 'list'>,
  tally: Tally,
): bigint | undefined {
  if (blockHeight === undefined) return undefined;
  const seen = tally.seenHeight ?? blockHeight;
  tally.seenHeight = seen > blockHeight ? seen : blockHeight;
  const isOfEnd = newestFirst || fromEnd === true;
  const floors = [tally.claimedHeight, isOfEnd ? seen : undefined];
  return floors.find((floor) => floor !== undefined && blockHeight < floor);
}

/**
 * Waits before the next attempt.
 * @throws SourceBehind if no node has reached the claimed block after several attempts
 */
async function waitForNextNode(
  { list, tally, signal, pauseMs = BEHIND_PAUSE_MS }: SyncContext,
  { blockHeight = 0n }: Page,
  claimed: bigint,
  attempt: number,
): Promise<void> {
  if (attempt >= BEHIND_ATTEMPTS_MAX)
    throw new SourceBehind(list, claimed, blockHeight);
  tally.warn(
    'SOURCE_BEHIND: a node that is behind responded, and the request was ' +
      'repeated',
  );
  await sleep(pauseMs * attempt, undefined, { signal });
}

function asDoubt(error: unknown): DoubtError | undefined {
  if (error instanceof DoubtError) return error;
  if (!(error instanceof PermanentError) || error.code !== 'PAGE_SHAPE')
    return undefined;
  return new DoubtError(error.message, {
    code: error.code,
    meta: error.meta,
    cause: error,
  });
}

/**
 * Checks that a sync has not exceeded one of its limits.
 * @throws DoubtError `LIST_ENDLESS`
 */
export function checkCeiling(
  context: SyncContext,
  what: keyof typeof CEILING,
  count: number,
): void {
  const { list, ceiling = CEILING } = context;
  const most = ceiling[what];
  if (count > most)
    throw doubt(
      list,
      'LIST_ENDLESS',
      `the list has shown no end within ${most} ${what}`,
    );
}

/** Reports progress for progress bars and logs. */
export function reportProgress({ list, tally, onProgress }: SyncContext): void {
  onProgress(measureProgress(list, tally));
}

function measureProgress(
  list: ListName,
  { newRows: rows, pages, phase, startedMs }: Tally,
) {
  const seconds = Math.max(performance.now() - startedMs, 1) / 1000;
  return {
    list,
    rows,
    pages,
    rowsPerSecond: Math.round(rows / seconds),
    phase,
  };
}

/**
 * Builds the evidence for a list's verdict.
 * @param missing the reason why the list is not `complete`
 */
export function describeSync(
  { list, tally, pageSize }: SyncContext,
  { epoch, current, gaps, doubts }: Omit<ListSituation, 'audit'>,
  missing: readonly object[] = [],
  audit?: AuditReport,
): VerdictWithEvidence['evidence'] {
  const { blockHeight, blockTime } = tally.head;
  return toStorableJson({
    list,
    ...tally.mode,
    epoch,
    asOfHeight: blockHeight,
    asOfTime: blockTime === undefined ? undefined : formatInstant(blockTime),
    rows: current?.rows ?? 0n,
    newRows: tally.countNew(audit),
    ...(tally.readings > 1 && { readings: tally.readings }),
    requests: tally.requests,
    pages: tally.pages,
    pageSize,
    resumedFrom: tally.resumedFrom,
    doubts: doubts.map(({ code, since, seen }) => ({
      code,
      since,
      message: seen['message'],
    })),
    knownGaps: gaps,
    missing,
    warnings: tally.warnings,
    network: tally.network,
    audit: audit && describeAudit({ ...audit, ...tally.countLost(audit) }),
    lastAuditAt: current?.auditedAt ?? undefined,
  });
}

function describeAudit(audit: AuditReport) {
  const {
    served,
    common: held,
    missed,
    gone,
    pruned,
    goneNewest,
    unconfirmed,
    finding,
    removed,
  } = audit;
  return {
    served,
    held,
    missed,
    gone,
    ...(pruned > 0n && { pruned }),
    ...(goneNewest > 0n && { goneNewest }),
    ...(unconfirmed > 0n && { removed: unconfirmed, firstRemoved: removed }),
    ...(finding !== 'same' && { finding }),
  };
}
