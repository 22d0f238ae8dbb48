/**
 * The one place that decides whether the mirror is complete. Status, API, console,
 * metrics, headers, and the report and notices of a nightly run all show what is decided
 * here, and none of them decides for itself. Pure.
 */
import type { Verdict } from '../errors/verdict.ts';
import type { Completeness } from './store/completeness.ts';

/** Why the mirror is not complete. */
export type Reason =
  /** No run has ended yet. */
  | 'NOTHING_MIRRORED'
  /** The last run of a list, or the last nightly run, was not complete. */
  | 'STREAM_NOT_PROVEN'
  /** A list was never read to its end since the network began again. */
  | 'LIST_NOT_READ'
  /** A doubt is open that no audit has closed. */
  | 'IN_DOUBT'
  /** The source no longer served rows of a list when they were to be read. */
  | 'GAP_KNOWN'
  /** Configured parties are not in the source's list. */
  | 'PARTIES_NOT_LISTED'
  /** Ledgers are not covered from the beginning on. */
  | 'LEDGERS_NOT_COVERED'
  /** The export of ledgers failed too often. */
  | 'LEDGERS_QUARANTINED'
  /** Published segments are not in the warehouse, and no run is loading them. */
  | 'SEGMENTS_NOT_LOADED'
  /** The last verification that was ordered found something. */
  | 'VERIFICATION_FAILED';

/** The verdict of the last run of each stream; null before the first. */
export type StreamVerdicts = readonly (Verdict | null)[];

/**
 * @param streams verdicts of both lists and of the ledgers
 * @returns every reason that the facts give; none: the mirror is complete for its scope
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
 * The reasons that keep a nightly run from being complete, beside the verdicts of its
 * parts. A gap that an audit has confirmed is not one: no later run can close it. A
 * verification that somebody ordered is not one either: each night verifies by itself.
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
