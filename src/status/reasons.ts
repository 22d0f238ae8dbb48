/**
 * The only code that decides whether the mirror is complete. The status, the API, the
 * console, the metrics, the headers, and the report and notices of a nightly run all show
 * this decision; none of them makes its own. Pure.
 */
import type { Verdict } from '../errors/verdict.ts';
import type { Completeness } from './store/completeness.ts';

/** A reason why the mirror is not complete. */
export type Reason =
  /** No run has ended yet. */
  | 'NOTHING_MIRRORED'
  /** The last run of a list, or the last nightly run, was not complete. */
  | 'STREAM_NOT_PROVEN'
  /** A list has never been read to its end since the source's chain last restarted. */
  | 'LIST_NOT_READ'
  /** A doubt is open that no audit has closed yet. */
  | 'IN_DOUBT'
  /** The source stopped serving rows of a list before the mirror had read them. */
  | 'GAP_KNOWN'
  /** Configured parties are not in the source's list. */
  | 'PARTIES_NOT_LISTED'
  /** Some ledgers are not covered without a gap from their beginning. */
  | 'LEDGERS_NOT_COVERED'
  /** The export of some ledgers failed too often. */
  | 'LEDGERS_QUARANTINED'
  /** Published segments are not in the warehouse, and no run is loading them. */
  | 'SEGMENTS_NOT_LOADED'
  /**
   * The last verification requested by an operator had a verdict other than `complete`.
   */
  | 'VERIFICATION_FAILED';

/** The verdict of the last run of each stream; null before the stream's first run. */
export type StreamVerdicts = readonly (Verdict | null)[];

/**
 * Returns every reason why the mirror is not complete.
 * @param streams verdicts of both lists and of the ledgers
 * @returns the reasons; empty if the mirror is complete for its scope
 */
export function findReasons(
  facts: Completeness,
  streams: StreamVerdicts,
): readonly Reason[] {
  if (streams.every((verdict) => verdict === null)) return ['NOTHING_MIRRORED'];
  const found: readonly (readonly [Reason, boolean])[] = [
    ['STREAM_NOT_PROVEN', streams.some((verdict) => verdict !== 'complete')],
    ['GAP_KNOWN', facts.knownGaps > 0],
    ['VERIFICATION_FAILED', facts.hasFailedVerify],
  ];
  const others = found.filter(([, applies]) => applies);
  return [
    ...new Set([
      ...findNightReasons(facts),
      ...others.map(([reason]) => reason),
    ]),
  ];
}

/**
 * Returns the reasons that keep a nightly run from being complete, in addition to the
 * verdicts of its parts. A gap that an audit has confirmed is not such a reason, because
 * no later run can close it. Nor is a failed verification that an operator requested,
 * because each nightly run does its own.
 */
export function findNightReasons(facts: Completeness): readonly Reason[] {
  const found: readonly (readonly [Reason, boolean])[] = [
    ['LIST_NOT_READ', facts.unreadLists.length > 0],
    ['IN_DOUBT', facts.openDoubts > 0],
    ['GAP_KNOWN', facts.unconfirmedGaps > 0],
    ['PARTIES_NOT_LISTED', facts.unlisted > 0],
    ['LEDGERS_NOT_COVERED', facts.covered < facts.wanted],
    ['LEDGERS_QUARANTINED', facts.quarantined > 0],
    ['SEGMENTS_NOT_LOADED', facts.notLoaded > 0 && !facts.isLoading],
  ];
  return found.filter(([, applies]) => applies).map(([reason]) => reason);
}
