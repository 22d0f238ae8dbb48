/**
 * Until when a ledger can be called closed: by the source's clock, never by ours alone.
 */
import {
  DAY_MICROS,
  floorSecond,
  SECOND_MICROS,
  type Micros,
} from '../../time/time.ts';
import { earlier } from '../../ledger/ranges.ts';

/** A block near the head may still be on its way into the node's tables. */
const MARGIN_MICROS = 120n * SECOND_MICROS;
/**
 * What a source without a clock of its blocks may lag behind the clock of its answers,
 * and behind ours.
 */
const ANSWERED_LAG_MICROS = 3600n * SECOND_MICROS;
const UNTOLD_LAG_MICROS = DAY_MICROS;

export interface SourceClock {
  readonly seen: Micros;
  /** Nothing newer is proven to be all there. A whole second. */
  readonly closedTo: Micros;
  /**
   * `guessed`: an upper bound alone; nothing is closed beyond what the source's own
   * entries have reached.
   */
  readonly from: 'source' | 'guessed';
  /**
   * The highest block that this answer, or any claim of the network, was as of; undefined
   * if the source shows none.
   */
  readonly height?: bigint | undefined;
  /** When the answer was given, by its server's clock. */
  readonly answeredAt?: Micros | undefined;
}

/** What a list's answer says of the time, and the highest block that is known. */
export interface ClockAnswer {
  /** Undefined or 0 if the source does not show it. */
  readonly blockTime: Micros | undefined;
  /** The time that the answer itself gives (its Date header). */
  readonly answeredAt?: Micros | undefined;
  readonly height?: bigint | undefined;
}

/**
 * @param answer of a list, which came before the export is requested
 * @param now this machine's time: it may delay closing, never hasten it
 */
export function sourceClock(
  { blockTime, answeredAt, height }: ClockAnswer,
  now: Micros,
): SourceClock {
  const isTold = blockTime !== undefined && blockTime > 0n;
  const guessed =
    answeredAt === undefined
      ? now - UNTOLD_LAG_MICROS
      : earlier(answeredAt, now) - ANSWERED_LAG_MICROS;
  const seen = isTold ? blockTime : guessed;
  const closedTo = floorSecond(earlier(seen, now) - MARGIN_MICROS);
  const from = isTold ? 'source' : 'guessed';
  return { seen, closedTo, from, height, answeredAt };
}
