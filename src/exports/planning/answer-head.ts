/**
 * Checks whether the node that responded is up to date. One address may lead to several
 * nodes, with caches in front of them. A response from a lagging node closes no range.
 */
import { formatInstant, type Micros, SECOND_MICROS } from '../../time/time.ts';
import { earlier } from '../../ledger/ranges.ts';
import type { AnswerHead } from '../ports.ts';
import type { SourceClock } from './source-clock.ts';

/**
 * How far past the required end a node's last block must be. The nodes of one fleet are
 * a few blocks apart, and storing a block takes some time.
 */
const WRITE_MARGIN_MICROS = 60n * SECOND_MICROS;
/** The largest clock skew to expect between two servers. */
const SKEW_MICROS = 300n * SECOND_MICROS;

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
    return `its last block is of ${formatInstant(blockTime)}`;

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
