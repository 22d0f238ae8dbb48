/**
 * Decides up to which instant a ledger can be closed, using the source's clock and never
 * ours alone. Also decides whether the node that sent a response has reached that
 * instant. One address may lead to several nodes, with caches in front of them. A
 * response from a lagging node closes no range.
 */
import {
  DAY_MICROS,
  floorSecond,
  formatInstant,
  SECOND_MICROS,
  type Micros,
} from '../../time/time.ts';
import { earlier } from '../../ledger/ranges.ts';
import type { AnswerHead } from '../ports.ts';

/**
 * Safety margin before the source's time: a block near the head may not be in the
 * node's tables yet.
 */
const MARGIN_MICROS = 120n * SECOND_MICROS;
/**
 * The maximum lags assumed for a source that reports no block time. The first is relative
 * to the time in its responses. The second is relative to our clock, and is used if the
 * responses have no time.
 */
const ANSWERED_LAG_MICROS = 3600n * SECOND_MICROS;
const UNTOLD_LAG_MICROS = DAY_MICROS;

/**
 * How far past the required end a node's last block must be. The nodes of one fleet are
 * a few blocks apart, and storing a block takes some time.
 */
const WRITE_MARGIN_MICROS = 60n * SECOND_MICROS;
/** The largest clock skew to expect between two servers. */
const SKEW_MICROS = 300n * SECOND_MICROS;

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
   * the source reports none.
   */
  readonly height?: bigint | undefined;
  /** When the response was sent, by the server's clock. */
  readonly answeredAt?: Micros | undefined;
}

/** The time and the highest known block, as shown by a response to a list request. */
export interface ClockAnswer {
  /**
   * The time of the node's last block; undefined or 0 if the source does not report it.
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
 * @param now this machine's time. If it is behind, the ledger is closed up to an earlier
 *   instant; it can never move `closedTo` later.
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
  // A source that is itself a mirror has already applied the margin. Without a second
  // margin, the two mirrors end at the same instant and can be compared down to the last
  // row.
  const marginMicros = isTold && isProven === true ? 0n : MARGIN_MICROS;
  const closedTo = floorSecond(earlier(seen, now) - marginMicros);
  const from = isTold ? 'source' : 'guessed';
  return { seen, closedTo, from, height, answeredAt };
}

/**
 * Checks whether the node that responded lags behind the run's clock.
 * @param clock the run's clock; the export would close the ledger at its `closedTo`
 * @param to the end of the request; undefined if it extends to the present
 * @returns a description of the lag; undefined if the node does not lag
 */
export function behindClock(
  head: AnswerHead,
  clock: SourceClock,
  to: Micros | undefined,
): string | undefined {
  const { blockHeight, blockTime, isProven = false } = head;
  const neededTo =
    to === undefined ? clock.closedTo : earlier(to, clock.closedTo);
  // A guessed end is the time of an entry, so a node that has reached it has the
  // entry's block. A margin would be wrong: a halted network has no block a minute
  // later.
  const isExact = isProven || clock.from === 'guessed';
  const margin = isExact ? 0n : WRITE_MARGIN_MICROS;
  const reaches = (instant: Micros): boolean =>
    blockTime !== undefined && blockTime - margin >= instant;
  if (blockTime !== undefined && !reaches(neededTo))
    return `its last block is from ${formatInstant(blockTime)}`;

  // A node may lag and still have all of an earlier range.
  const isEarlierRange = to !== undefined && reaches(to);
  const { height } = clock;
  if (
    blockHeight !== undefined &&
    height !== undefined &&
    blockHeight < height &&
    !isEarlierRange
  )
    return `its last block is ${blockHeight}, and an earlier answer was of ${height}`;

  return keptByCache(head, clock);
}

/** Describes the response's age if it seems to come from a cache. */
function keptByCache(
  { producedAt, ageMicros = 0n }: AnswerHead,
  { answeredAt }: SourceClock,
): string | undefined {
  if (
    producedAt !== undefined &&
    answeredAt !== undefined &&
    producedAt < answeredAt - SKEW_MICROS
  )
    return `it was made at ${formatInstant(producedAt)}, as if a cache had kept it`;
  if (ageMicros <= SKEW_MICROS) return undefined;
  return `its age is ${ageMicros / SECOND_MICROS} seconds: a cache has kept it`;
}
