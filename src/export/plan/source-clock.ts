/** Until when a ledger can be called closed: by the source's clock, never by ours alone. */
import { DAY_MICROS, floorSecond, SECOND_MICROS, type Micros } from '../../core/time.ts';

/** A block near the head may still be on its way into the node's tables. */
const MARGIN_MICROS = 120n * SECOND_MICROS;
/** By our clock alone nothing younger is closed: it may be wrong, and the source may lag. */
const UNTOLD_LAG_MICROS = DAY_MICROS;

export interface SourceClock {
  readonly seen: Micros;
  /** Nothing newer is proven to be all there. A whole second. */
  readonly closedTo: Micros;
  readonly from: 'source' | 'guessed';
}

/**
 * @param blockTime of a list's answer that came before the export is asked; undefined or 0 where untold
 * @param now this machine's time: it may delay closing, never hasten it
 */
export function sourceClock(blockTime: Micros | undefined, now: Micros): SourceClock {
  const isTold = blockTime !== undefined && blockTime > 0n;
  const seen = isTold ? blockTime : now - UNTOLD_LAG_MICROS;
  const capped = seen < now ? seen : now;
  return { seen, closedTo: floorSecond(capped - MARGIN_MICROS), from: isTold ? 'source' : 'guessed' };
}
