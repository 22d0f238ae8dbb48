/** What every step of one sync shares: its session, its source, its limits, what it has seen, and the evidence of that. */
import { PermanentError } from '../core/errors.ts';
import { storable } from '../core/json-value.ts';
import { formatInstant, type Micros } from '../core/time.ts';
import type { VerdictWithEvidence } from '../core/verdict.ts';
import { checkPage, doubt, DoubtSeen, type Accepted } from './guards.ts';
import type { ListName, ListSource, Page, PageQuestion, ResumePointStore } from './ports.ts';
import type { ResumedFrom, ResumePoints } from './resume-point.ts';
import type { AuditReport } from './store/claim.ts';
import type { ListSession, ListSituation, ListStore } from './store/list-store.ts';

export interface SyncProgress {
  readonly list: ListName;
  readonly rows: number;
  readonly pages: number;
  readonly rowsPerSecond: number;
  /** First the list is read; then the source has to show that it ends there. */
  readonly phase: 'reading' | 'proving the end';
}

/** Tests stop, kill or disturb a sync at these steps. */
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
  /** After which a list that does not end is given up. */
  readonly ceiling?: typeof CEILING;
  /** Pause before the source is asked again for rows that it has shown elsewhere. */
  readonly pauseMs?: number;
}

const CEILING = { rows: 50_000_000, requests: 2_000_000 };

export interface SyncMode {
  readonly kind: 'first reading' | 'increment' | 'audit';
  /** Why everything is read again. */
  readonly because?: string;
}

export interface SyncContext {
  readonly deps: SyncDeps;
  readonly session: ListSession;
  readonly resumePoints: ResumePoints;
  readonly list: ListName;
  readonly signal: AbortSignal;
  readonly tally: Tally;
  readonly pageSize: number;
  readonly accepted: Accepted;
}

/** What one sync has asked and seen. */
export class Tally {
  mode: SyncMode = { kind: 'increment' };
  resumedFrom: ResumedFrom | undefined;
  requests = 0;
  pages = 0;
  newRows = 0;
  height: bigint | undefined;
  time: Micros | undefined;
  readonly warnings: string[] = [];
  network: 'stored' | undefined;
  phase: SyncProgress['phase'] = 'reading';
  readonly startedMs = performance.now();

  warn(text: string): void {
    if (!this.warnings.includes(text) && this.warnings.length < 20) this.warnings.push(text);
  }
}

/**
 * Asks for a page, and once more where the source contradicts itself: a passing error is no reason for doubt.
 * @throws DoubtSeen where the second answer contradicts itself too
 */
export async function askPage(context: SyncContext, question: Omit<PageQuestion, 'list'>): Promise<Page> {
  const { deps, list, tally, signal } = context;
  for (let isAgain = false; ; isAgain = true) {
    checkCeiling(context, 'requests', tally.requests + 1);
    tally.requests += 1;
    await deps.failpoint?.('asking');
    try {
      const page = await deps.source.page({ list, ...question }, signal);
      await deps.failpoint?.('received');
      if (page.blockHeight !== undefined && question.newestFirst) {
        tally.height = page.blockHeight;
        tally.time = page.blockTime;
      }
      const fault = checkPage(list, page);
      if (fault === undefined) return page;
      throw fault;
    } catch (error) {
      const fault = asDoubt(error);
      if (fault === undefined || isAgain) throw fault ?? error;
      tally.warn(`${fault.code}: the page was asked for again`);
    }
  }
}

function asDoubt(error: unknown): DoubtSeen | undefined {
  if (error instanceof DoubtSeen) return error;
  if (!(error instanceof PermanentError) || error.code !== 'PAGE_SHAPE') return undefined;
  return new DoubtSeen(error.message, { code: error.code, meta: error.meta, cause: error });
}

/** @throws DoubtSeen `LIST_ENDLESS` */
export function checkCeiling({ deps, list }: SyncContext, what: keyof typeof CEILING, count: number): void {
  const most = (deps.ceiling ?? CEILING)[what];
  if (count > most) throw doubt(list, 'LIST_ENDLESS', `the list has shown no end within ${most} ${what}`);
}

/** For bars and logs. */
export function reportProgress({ deps, list, tally }: SyncContext): void {
  const { newRows: rows, pages, phase, startedMs } = tally;
  const seconds = Math.max(performance.now() - startedMs, 1) / 1000;
  deps.onProgress({ list, rows, pages, rowsPerSecond: Math.round(rows / seconds), phase });
}

/** What a list has to show for its verdict. */
export interface Standing extends Pick<ListSituation, 'epoch' | 'gaps' | 'doubts'> {
  readonly rows: bigint;
  readonly auditedAt: string | null | undefined;
  readonly audit?: AuditReport | undefined;
  /** What stands between the list and `complete`. */
  readonly missing: readonly { readonly code: string; readonly [detail: string]: unknown }[];
}

export function describeSync(
  { list, tally, pageSize }: SyncContext,
  standing: Standing,
): VerdictWithEvidence['evidence'] {
  const { epoch, rows, auditedAt, audit, missing, gaps, doubts } = standing;
  return storable({
    list,
    ...tally.mode,
    epoch,
    asOfHeight: tally.height,
    asOfTime: tally.time === undefined ? undefined : formatInstant(tally.time),
    rows,
    newRows: audit === undefined ? BigInt(tally.newRows) : audit.served - audit.common,
    requests: tally.requests,
    pages: tally.pages,
    pageSize,
    resumedFrom: tally.resumedFrom,
    doubts: doubts.map(({ code, since, seen }) => ({ code, since, message: seen['message'] })),
    knownGaps: gaps.map((gap) => ({ ...gap, gapId: undefined })),
    missing,
    warnings: tally.warnings,
    network: tally.network,
    audit: audit && describeAudit(audit),
    lastAuditAt: auditedAt ?? undefined,
  });
}

function describeAudit(audit: AuditReport): object {
  const { served, common: held, missed, gone, pruned, unconfirmed, finding, removed } = audit;
  return {
    served,
    held,
    missed,
    gone,
    ...(pruned === 0n ? {} : { pruned }),
    ...(unconfirmed === 0n ? {} : { removed: unconfirmed, firstRemoved: removed }),
    ...(finding === 'same' ? {} : { finding }),
  };
}
