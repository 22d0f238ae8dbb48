/**
 * How far the node was that answered: behind one address may stand several, with caches
 * before them. An answer of one that is behind closes nothing.
 */
import { formatInstant, type Micros, SECOND_MICROS } from '../../time/time.ts';
import { earlier } from '../../ledger/ranges.ts';
import type { AnswerHead } from '../ports.ts';
import type { SourceClock } from './source-clock.ts';

/** Nodes of one fleet are a few blocks apart, and blocks take a moment to be stored. */
const WRITE_MARGIN_MICROS = 60n * SECOND_MICROS;
/** The clocks of two servers may differ by so much. */
const SKEW_MICROS = 300n * SECOND_MICROS;

/**
 * @param clock `closedTo` is where the export would close the ledger
 * @param to the end of the request; undefined: up to the present
 * @returns what shows that the node is behind the run's clock; undefined if nothing does
 */
export function behindClock(
  { blockHeight, blockTime, producedAt, isProven = false }: AnswerHead,
  clock: SourceClock,
  to: Micros | undefined,
): string | undefined {
  const neededTo =
    to === undefined ? clock.closedTo : earlier(to, clock.closedTo);
  // A guessed end is that of an entry, and its block is one of the node's if it has come
  // so far: a network that stands still has no block a minute later.
  const isExact = isProven || clock.from === 'guessed';
  const margin = isExact ? 0n : WRITE_MARGIN_MICROS;
  const reaches = (instant: Micros): boolean =>
    blockTime !== undefined && blockTime - margin >= instant;
  if (blockTime !== undefined && !reaches(neededTo))
    return `its last block is of ${formatInstant(blockTime)}`;

  // A node may be behind and yet hold all of an earlier range.
  const isEarlierRange = to !== undefined && reaches(to);
  const { height, answeredAt } = clock;
  if (
    blockHeight !== undefined &&
    height !== undefined &&
    blockHeight < height &&
    !isEarlierRange
  )
    return `its last block is ${blockHeight}, and an earlier answer was of ${height}`;

  if (
    producedAt !== undefined &&
    answeredAt !== undefined &&
    producedAt < answeredAt - SKEW_MICROS
  )
    return `it was made at ${formatInstant(producedAt)}, as if a cache had kept it`;
  return undefined;
}
