/**
 * The state that the source client shares across all workers, and the observers of its
 * requests.
 */
import type { Micros } from '../time/time.ts';

/** The request budget that all workers share. */
export interface RateState {
  /**
   * Reserves the next request slot under the rate limit.
   * @returns how long to wait until that request may be sent
   */
  reserve(
    budget: string,
    ratePerSecond: number,
  ): Promise<{ readonly waitMs: number }>;
}

/**
 * Stores when the source's ban ends. Every worker must know this, because a request
 * during a ban extends it.
 */
export interface BanStore {
  get(): Promise<Micros | undefined>;
  /** Stores the end of a ban unless a later one is already stored. */
  set(until: Micros): Promise<void>;
}

export type Route = 'parties' | 'checkpoints' | 'export' | 'proof';

/** One request that was sent, whether or not there was a response. */
export interface RequestReport {
  readonly route: Route;
  /** The response's status; undefined if no response arrived. */
  readonly status: number | undefined;
  /** For an export, the time until its stream ended or was closed. */
  readonly durationMs: number;
  /** Size of the body in bytes, as received over the wire. */
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

/** What some work costs the source. */
export interface SourceCost {
  readonly requests: { readonly lists: number; readonly exports: number };
  /** Requests that repeated an earlier one. */
  readonly retries: number;
  /** Requests without a successful response. */
  readonly failures: number;
  /** Total size of the bodies over the wire, in bytes. */
  readonly bytes: number;
  /** Time spent waiting for the rate limit, for bans and between retries. */
  readonly waitedMs: number;
}

/** Measures what each run costs the source. */
export interface RunMeter {
  /** Attributes every request that `work` makes to the run. */
  during<Result>(runId: string, work: () => Promise<Result>): Promise<Result>;
  /**
   * Returns the counts and resets them.
   * @returns the cost of each run since the last call
   */
  take(): readonly (readonly [runId: string, cost: SourceCost])[];
}

/** A monotonic clock that can also sleep. Tests replace it to avoid waiting. */
export interface Clock {
  nowMs(): number;
  /** Rejects with the signal's reason if it is aborted. */
  sleep(delayMs: number, signal: AbortSignal): Promise<void>;
}
