/**
 * The state that the source client shares with all workers, and the observers of its
 * requests.
 */
import type { Micros } from '../time/time.ts';

/** One budget of requests for all workers. */
export interface RateState {
  /**
   * Reserves the next request of the rate limit.
   * @returns how long to wait until that request may be sent
   */
  reserve(
    budget: string,
    ratePerSecond: number,
  ): Promise<{ readonly waitMs: number }>;
}

/**
 * Stores the end of the source's ban. A request during a ban makes the ban longer, so
 * every worker must know it.
 */
export interface BanStore {
  get(): Promise<Micros | undefined>;
  /** Stores the end of a ban, unless a later one is stored already. */
  set(until: Micros): Promise<void>;
}

export type Route = 'parties' | 'checkpoints' | 'export' | 'proof';

/** One request that was sent, whether it was answered or not. */
export interface RequestReport {
  readonly route: Route;
  /** The answer's status; undefined if no answer arrived. */
  readonly status: number | undefined;
  /** For an export, the time until its stream ended or was closed. */
  readonly durationMs: number;
  /** Bytes of the body, as they arrived over the wire. */
  readonly bytes: number;
  /** The number of this attempt, from 1. */
  readonly attempt: number;
  readonly errorCode: string | undefined;
}

export type WaitReason = 'rate' | 'ban' | 'retry';

/** One wait before a request. */
export interface WaitReport {
  readonly route: Route;
  readonly reason: WaitReason;
  readonly waitMs: number;
}

export interface SourceObserver {
  onRequest(report: RequestReport): void;
  onWait(report: WaitReport): void;
}

/** The cost of some work for the source. */
export interface SourceCost {
  readonly requests: { readonly lists: number; readonly exports: number };
  /** Requests that repeated an earlier one. */
  readonly retries: number;
  /** Requests without a good answer. */
  readonly failures: number;
  /** Bytes of the bodies, over the wire. */
  readonly bytes: number;
  /** Time spent waiting for the rate limit, for bans and between retries. */
  readonly waitedMs: number;
}

/** Measures the cost of each run for the source. */
export interface RunMeter {
  /** Counts every request that `work` makes for the run. */
  during<Result>(runId: string, work: () => Promise<Result>): Promise<Result>;
  /**
   * Returns the counts and resets them.
   * @returns the cost of each run since the last call
   */
  take(): readonly (readonly [runId: string, cost: SourceCost])[];
}

/** Monotonic time and waiting. Tests replace it so that they need not wait. */
export interface Clock {
  nowMs(): number;
  /** Rejects with the signal's reason when it is aborted. */
  sleep(delayMs: number, signal: AbortSignal): Promise<void>;
}
