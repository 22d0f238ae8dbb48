/** The one retry layer of S3 calls: the SDK asks it after every failure, and the table of errors decides. */
import type { S3ClientConfig } from '@aws-sdk/client-s3';
import { retryOf } from './s3-errors.ts';

type Strategy = Extract<S3ClientConfig['retryStrategy'], { refreshRetryTokenForRetry: unknown }>;
type Token = Awaited<ReturnType<Strategy['acquireInitialRetryToken']>>;

const DELAY_MIN_MS = 100;
const DELAY_MAX_MS = 3_000;
/** Attempts after data was damaged in transit. */
const FEW = 5;

/** One call's failures so far. */
class CallToken implements Token {
  readonly #failures: number;
  /** Of the first failure, on the monotonic clock. */
  readonly sinceMs: number | undefined;
  readonly #delayMs: number;

  constructor(failures = 0, sinceMs?: number, delayMs = 0) {
    this.#failures = failures;
    this.sinceMs = sinceMs;
    this.#delayMs = delayMs;
  }

  getRetryCount(): number {
    return this.#failures;
  }

  getRetryDelay(): number {
    return this.#delayMs;
  }
}

/** Waits for a store that is away or busy as long as `patienceMs`, from a call's first failure on. */
export class PatientRetry implements Strategy {
  readonly #patienceMs: number;

  constructor(patienceMs: number) {
    this.#patienceMs = patienceMs;
  }

  async acquireInitialRetryToken(): Promise<Token> {
    return new CallToken();
  }

  /** @throws where the call shall end with its error */
  async refreshRetryTokenForRetry(
    token: Token,
    { error }: Parameters<Strategy['refreshRetryTokenForRetry']>[1],
  ): Promise<Token> {
    const failures = token.getRetryCount() + 1;
    const nowMs = performance.now();
    const sinceMs = (token instanceof CallToken ? token.sinceMs : undefined) ?? nowMs;
    const delayMs = backOffMs(failures);
    const retry = retryOf(error);
    const isWorthIt =
      retry === 'wait' ? nowMs + delayMs - sinceMs <= this.#patienceMs : retry === 'few' && failures < FEW;
    if (!isWorthIt) throw new Error('not tried again');
    return new CallToken(failures, sinceMs, delayMs);
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
