/** The state that the source client shares with all workers, and its observers. */
import type { Micros } from '../time/time.ts';

/** One budget of requests for all workers. */
export interface RateState {
  /**
   * Reserves the next request of the rate limit.
   * @returns how long to wait until that moment
   */
  reserve(
    budget: string,
    ratePerSecond: number,
  ): Promise<{ readonly waitMs: number }>;
}

/**
 * Until when the source has banned us. Asking during a ban lengthens it, so every worker
 * must know.
 */
export interface BanStore {
  get(): Promise<Micros | undefined>;
  /** Never moves a stored end to an earlier time. */
  set(until: Micros): Promise<void>;
}

export type Route = 'parties' | 'checkpoints' | 'export';

/** One request that was sent, answered or not. */
export interface RequestReport {
  readonly route: Route;
  /** Undefined where no answer came. */
  readonly status: number | undefined;
  /** Of an export: until its stream ended or was closed. */
  readonly durationMs: number;
  /** Of the body, as it came over the wire. */
  readonly bytes: number;
  /** 1 for the first. */
  readonly attempt: number;
  readonly errorCode: string | undefined;
}

export type WaitReason = 'rate' | 'ban' | 'retry';

export interface WaitReport {
  readonly route: Route;
  readonly reason: WaitReason;
  readonly waitMs: number;
}

export interface SourceObserver {
  onRequest(report: RequestReport): void;
  onWait(report: WaitReport): void;
}

/** What some work cost the source. */
export interface SourceCost {
  readonly requests: { readonly lists: number; readonly exports: number };
  /** Of them sent again, and not answered well. */
  readonly retries: number;
  readonly failures: number;
  /** Of the bodies, over the wire. */
  readonly bytes: number;
  /** For the rate, for bans, between retries. */
  readonly waitedMs: number;
}

/** What is asked of the source, for each run that it is asked for. */
export interface RunMeter {
  /** Whatever `work` asks is counted for the run. */
  during<Result>(runId: string, work: () => Promise<Result>): Promise<Result>;
  /** What was counted since the last call. */
  take(): readonly (readonly [runId: string, cost: SourceCost])[];
}

/** Monotonic time and waiting, so that tests need not wait. */
export interface Clock {
  nowMs(): number;
  /** Rejects with the signal's reason when it is aborted. */
  sleep(delayMs: number, signal: AbortSignal): Promise<void>;
}
