/** The one retry layer of S3 calls: the SDK asks it after every failure, and the table of errors decides. */
import type { S3ClientConfig } from '@aws-sdk/client-s3';
import { retryOf } from './errors.ts';

type Strategy = Extract<S3ClientConfig['retryStrategy'], { refreshRetryTokenForRetry: unknown }>;
type Token = Awaited<ReturnType<Strategy['acquireInitialRetryToken']>>;

const DELAY_MIN_MS = 100;
const DELAY_MAX_MS = 3_000;
/** Attempts after data was damaged in transit. */
const FEW = 5;

interface CallToken extends Token {
  /** Of the first failure, on the monotonic clock. */
  readonly sinceMs?: number;
}

/** One call's failures so far. */
function callToken(failures: number, delayMs: number, sinceMs?: number): CallToken {
  const counts = { getRetryCount: () => failures, getRetryDelay: () => delayMs };
  return sinceMs === undefined ? counts : { ...counts, sinceMs };
}

/** Waits for a store that is away or busy as long as `patienceMs`, from a call's first failure on. */
export class PatientRetry implements Strategy {
  readonly #patienceMs: number;

  constructor(patienceMs: number) {
    this.#patienceMs = patienceMs;
  }

  async acquireInitialRetryToken(): Promise<CallToken> {
    return callToken(0, 0);
  }

  /** @throws where the call shall end with its error */
  async refreshRetryTokenForRetry(
    token: CallToken,
    { error }: Parameters<Strategy['refreshRetryTokenForRetry']>[1],
  ): Promise<CallToken> {
    const failures = token.getRetryCount() + 1;
    const nowMs = performance.now();
    const sinceMs = token.sinceMs ?? nowMs;
    const delayMs = backOffMs(failures);
    const retry = retryOf(error);
    const isWorthIt =
      retry === 'wait' ? nowMs + delayMs - sinceMs <= this.#patienceMs : retry === 'few' && failures < FEW;
    if (!isWorthIt) throw new Error('not tried again');
    return callToken(failures, delayMs, sinceMs);
  }

  recordSuccess(): void {
    // Nothing is shared between calls.
  }
}

/** Doubling with jitter, so that workers do not retry together. */
function backOffMs(failures: number): number {
  const fullMs = Math.min(DELAY_MAX_MS, DELAY_MIN_MS * 2 ** Math.min(failures, 16));
  return fullMs * (0.5 + Math.random() / 2);
}
