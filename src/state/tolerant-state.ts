/** While the store is unreachable, work goes on without hints. */
import { isRetryable } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { rateScheduleOf, reserveNext, wholeMs } from './rate-schedule.ts';
import type { ResumeState } from './resume-state.ts';

/** In an outage the store is tried this often, so that not every call pays its timeout. */
const ASK_AGAIN_MS = 1_000;
/** Without the store workers cannot share the rate: each takes this part of it. */
const RATE_SHARE = 4;

interface TolerantStateOptions {
  readonly log: Pick<Log, 'info' | 'warn'>;
  /** A clock that never goes back, in milliseconds. */
  readonly nowMs?: () => number;
}

/**
 * `inner`, but in an outage `get` knows nothing, `set` does nothing, and `reserve` paces
 * this process alone at a quarter of the rate. Each outage is logged once, and its end. What the
 * store refuses for good is still thrown.
 */
export class TolerantState implements ResumeState {
  readonly #inner: ResumeState;
  readonly #log: TolerantStateOptions['log'];
  readonly #nowMs: () => number;
  readonly #dueTimes = new Map<string, number>();
  #awaySinceMs: number | undefined;
  #askAgainAtMs = 0;

  constructor(inner: ResumeState, { log, nowMs = () => performance.now() }: TolerantStateOptions) {
    this.#inner = inner;
    this.#log = log;
    this.#nowMs = nowMs;
  }

  async get(key: string): Promise<unknown> {
    return this.#ask(
      () => this.#inner.get(key),
      () => undefined,
    );
  }

  async set(key: string, value: unknown, ttlMs: number): Promise<void> {
    await this.#ask(
      () => this.#inner.set(key, value, ttlMs),
      () => undefined,
    );
  }

  async reserve(budget: string, ratePerSecond: number): Promise<{ waitMs: number }> {
    return this.#ask(
      () => this.#inner.reserve(budget, ratePerSecond),
      () => this.#reserveAlone(budget, ratePerSecond / RATE_SHARE),
    );
  }

  async close(): Promise<void> {
    await this.#inner.close();
  }

  async #ask<Answer>(ask: () => Promise<Answer>, instead: () => Answer): Promise<Answer> {
    if (this.#awaySinceMs !== undefined && this.#nowMs() < this.#askAgainAtMs) return instead();
    // In an outage one caller tries the store; the others do not wait for it.
    this.#askAgainAtMs = this.#nowMs() + ASK_AGAIN_MS;
    try {
      const answer = await ask();
      this.#noteBack();
      return answer;
    } catch (error) {
      if (!isRetryable(error)) throw error;
      this.#noteAway(error);
      return instead();
    }
  }

  #noteAway(error: unknown): void {
    this.#askAgainAtMs = this.#nowMs() + ASK_AGAIN_MS;
    if (this.#awaySinceMs !== undefined) return;
    this.#awaySinceMs = this.#nowMs();
    this.#log.warn({ err: error }, 'Resume state is away, work goes on without it');
  }

  #noteBack(): void {
    if (this.#awaySinceMs === undefined) return;
    this.#log.info({ awayMs: Math.round(this.#nowMs() - this.#awaySinceMs) }, 'Resume state is back');
    this.#awaySinceMs = undefined;
    this.#dueTimes.clear();
  }

  #reserveAlone(budget: string, ratePerSecond: number): { waitMs: number } {
    const { dueAt, waitMicros } = reserveNext(this.#dueTimes.get(budget), this.#nowMs() * 1000, {
      ...rateScheduleOf(ratePerSecond),
      burst: 0,
    });
    this.#dueTimes.set(budget, dueAt);
    return { waitMs: wholeMs(waitMicros) };
  }
}
