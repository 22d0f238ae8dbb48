/** What every step of one sync shares: its session, its source, its limits and what it has seen. */
import { errorCode, PermanentError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Micros } from '../core/time.ts';
import { checkPage, doubt, DoubtSeen } from './guards.ts';
import type { ListName, ListSource, Page, PageQuestion, ResumePointStore } from './ports.ts';
import type { ResumePointWriter } from './resume-point.ts';
import type { ListSession, ListStore } from './store/list-store.ts';

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
  readonly log: Log;
  readonly onProgress: (progress: SyncProgress) => void;
  readonly failpoint?: (step: Failpoint) => Promise<void> | void;
  /** Pages after which a list that does not end is given up. */
  readonly ceiling?: Ceiling;
  /** Pause before the source is asked again for rows that it has shown elsewhere. */
  readonly pauseMs?: number;
}

export interface Ceiling {
  readonly rows: number;
  readonly requests: number;
}

export const CEILING: Ceiling = { rows: 50_000_000, requests: 2_000_000 };
export const PAUSE_MS = 500;

export interface SyncContext {
  readonly deps: SyncDeps;
  readonly session: ListSession;
  readonly writer: ResumePointWriter;
  readonly list: ListName;
  readonly signal: AbortSignal;
  readonly tally: Tally;
  readonly pageSize: number;
}

/** What one sync has asked and seen. */
export class Tally {
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
  const { deps, list, tally } = context;
  const ceiling = deps.ceiling ?? CEILING;
  for (let attempt = 1; ; attempt += 1) {
    if (tally.requests >= ceiling.requests) throw endless(list, `${ceiling.requests} requests`);
    tally.requests += 1;
    await deps.failpoint?.('asking');
    const fault = await lookAtPage(context, question);
    if (!(fault instanceof DoubtSeen)) return fault;
    if (attempt === 2) throw fault;
    tally.warn(`${fault.code}: the page was asked for again`);
  }
}

async function lookAtPage(
  { deps, list, tally, signal }: SyncContext,
  question: Omit<PageQuestion, 'list'>,
): Promise<Page | DoubtSeen> {
  try {
    const page = await deps.source.page({ list, ...question }, signal);
    await deps.failpoint?.('received');
    if (page.blockHeight !== undefined && question.newestFirst) {
      tally.height = page.blockHeight;
      tally.time = page.blockTime;
    }
    return checkPage(list, page) ?? page;
  } catch (error) {
    if (errorCode(error) !== 'PAGE_SHAPE' || !(error instanceof PermanentError)) throw error;
    return new DoubtSeen(error.message, { code: error.code, meta: error.meta, cause: error });
  }
}

export function endless(list: ListName, limit: string): DoubtSeen {
  return doubt(list, 'LIST_ENDLESS', `the list has shown no end within ${limit}`);
}

/** For bars and logs. */
export function reportProgress({ deps, list, tally }: SyncContext): void {
  const { newRows: rows, pages, phase, startedMs } = tally;
  const seconds = Math.max(performance.now() - startedMs, 1) / 1000;
  deps.onProgress({ list, rows, pages, rowsPerSecond: Math.round(rows / seconds), phase });
}
