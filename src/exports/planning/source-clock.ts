/**
 * Decides up to which instant a ledger can be closed, by the source's clock and never
 * by ours alone.
 */
import {
  DAY_MICROS,
  floorSecond,
  SECOND_MICROS,
  type Micros,
} from '../../time/time.ts';
import { earlier } from '../../ledger/ranges.ts';

/**
 * Safety margin before the source's time: a block near the head may not be in the
 * node's tables yet.
 */
const MARGIN_MICROS = 120n * SECOND_MICROS;
/**
 * Assumed maximum lag of a source that shows no block time: behind the clock of its
 * responses, or behind ours if they show no time either.
 */
const ANSWERED_LAG_MICROS = 3600n * SECOND_MICROS;
const UNTOLD_LAG_MICROS = DAY_MICROS;

export interface SourceClock {
  readonly seen: Micros;
  /** The ledger can be proven complete only up to this instant, a whole second. */
  readonly closedTo: Micros;
  /**
   * `guessed`: `closedTo` is only an upper bound. Nothing is closed after the newest
   * entry that the source has sent.
   */
  readonly from: 'source' | 'guessed';
  /**
   * The highest block of this response or of any claim about the network; undefined if
   * the source shows none.
   */
  readonly height?: bigint | undefined;
  /** When the response was sent, by the server's clock. */
  readonly answeredAt?: Micros | undefined;
}

/** The time and the highest known block, as shown by a response to a list request. */
export interface ClockAnswer {
  /**
   * The time of the node's last block; undefined or 0 if the source does not show it.
   */
  readonly blockTime: Micros | undefined;
  /** The time in the response's Date header. */
  readonly answeredAt?: Micros | undefined;
  readonly height?: bigint | undefined;
  /**
   * Whether the response came from a mirror, whose ledgers are proven up to
   * `blockTime`.
   */
  readonly isProven?: boolean;
}

/**
 * Computes the source's clock for an export.
 * @param answer the response to a list request that was sent before the export's
 *   request
 * @param now this machine's time: it may delay closing, but never make it earlier
 */
export function sourceClock(
  { blockTime, answeredAt, height, isProven }: ClockAnswer,
  now: Micros,
): SourceClock {
  const isTold = blockTime !== undefined && blockTime > 0n;
  const guessed =
    answeredAt === undefined
      ? now - UNTOLD_LAG_MICROS
      : earlier(answeredAt, now) - ANSWERED_LAG_MICROS;
  const seen = isTold ? blockTime : guessed;
  // A source that is itself a mirror has already applied the margin. Because both end
  // at the same instant, they can be compared to the last row.
  const marginMicros = isTold && isProven === true ? 0n : MARGIN_MICROS;
  const closedTo = floorSecond(earlier(seen, now) - marginMicros);
  const from = isTold ? 'source' : 'guessed';
  return { seen, closedTo, from, height, answeredAt };
}
