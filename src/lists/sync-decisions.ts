/**
 * Decides what a sync does after each reading of a list. Nothing here reads, writes or
 * waits; `sync-list.ts` carries out the decisions.
 */
import {
  DoubtError,
  EndNotShown,
  OverlapMissing,
  SourceBehind,
} from './page-checks.ts';
import { StaleResumePoint } from './resume-point.ts';
import type { Generation } from './store/generations.ts';

/**
 * How many outdated resume points one sync tolerates. Each costs one page; the second
 * attempt uses the resume point from Postgres.
 */
export const STALE_MAX = 3;
/**
 * How many times stored rows that the source did not show are requested again before the
 * whole list is read again.
 */
export const NOT_SHOWN_MAX = 3;
/** Maximum number of complete readings in one sync; two consecutive ones must agree. */
export const READINGS_MAX = 4;

/** The setbacks of a sync so far. */
export interface Setbacks {
  /**
   * How many outdated resume points this sync has encountered. After the first, it
   * resumes from Postgres. Reading the list from its start resets the count.
   */
  readonly stale: number;
  /** How many times the source did not show rows that are stored. */
  readonly notShown: number;
}

export const NO_SETBACKS: Setbacks = { stale: 0, notShown: 0 };

/** A sync before the decision. */
export interface SyncState {
  /** The generation that was read. */
  readonly generation: Pick<Generation, 'kind' | 'sequence'>;
  readonly setbacks: Setbacks;
  /** How many times this sync has read the whole list, including the last reading. */
  readonly readings: number;
}

/** How a reading ended, apart from a claim that has a verdict. */
export type Setback =
  /** The list is claimed, but a second reading has to confirm it. */
  | { readonly kind: 'unconfirmed' }
  | { readonly kind: 'thrown'; readonly error: unknown };

/** The generation to read next, and why. */
export type NextReading =
  /** Read an audit of the current network, to confirm the last reading. */
  | { readonly kind: 'confirm' }
  /** Continue the same generation from the resume point in Postgres. */
  | { readonly kind: 'resume' }
  /** Discard the rows that an earlier run has read for this audit. */
  | { readonly kind: 'restart audit' }
  /**
   * Request the stored rows again after a pause of this many units: a lagging node may
   * have responded, and the next node may be up to date.
   */
  | { readonly kind: 'try next node'; readonly pauses: number }
  /**
   * Read the whole list: the source no longer continues from the stored rows.
   */
  | { readonly kind: 'audit instead'; readonly because: string };

export type SyncDecision =
  | {
      readonly kind: 'read again';
      readonly next: NextReading;
      readonly setbacks: Setbacks;
    }
  /** Record the error as the reason why the list is not complete. */
  | { readonly kind: 'refuse'; readonly error: DoubtError | EndNotShown }
  /** Refuse, and find out first whether the source serves a different network. */
  | { readonly kind: 'refuse source behind'; readonly error: SourceBehind }
  /** Refuse: the limit of readings is reached, and no two of them agreed. */
  | { readonly kind: 'refuse unsteady' }
  /** Give up for now: other workers keep changing the resume point. */
  | { readonly kind: 'busy' }
  /** The error says nothing about the list. */
  | { readonly kind: 'rethrow'; readonly error: unknown };

export function decideNext(state: SyncState, setback: Setback): SyncDecision {
  const { setbacks, readings } = state;
  if (setback.kind === 'thrown') return decideAfterError(state, setback.error);
  return readings >= READINGS_MAX
    ? { kind: 'refuse unsteady' }
    : readAgain({ kind: 'confirm' }, { ...setbacks, stale: 0 });
}

function decideAfterError(
  { generation, setbacks }: SyncState,
  error: unknown,
): SyncDecision {
  if (error instanceof StaleResumePoint) {
    const stale = setbacks.stale + 1;
    return stale > STALE_MAX
      ? { kind: 'busy' }
      : readAgain({ kind: 'resume' }, { ...setbacks, stale });
  }
  const isResumedAudit =
    generation.kind === 'audit' && generation.sequence > 0n;
  if (error instanceof DoubtError && isResumedAudit)
    return readAgain({ kind: 'restart audit' }, setbacks);
  if (error instanceof OverlapMissing && generation.kind === 'current')
    return decideAfterMissing(error, setbacks);
  if (error instanceof SourceBehind)
    return { kind: 'refuse source behind', error };
  return isRefusal(error)
    ? { kind: 'refuse', error }
    : { kind: 'rethrow', error };
}

/** Decides what follows if the source did not show the stored rows. */
function decideAfterMissing(
  { state: because }: OverlapMissing,
  setbacks: Setbacks,
): SyncDecision {
  const notShown = setbacks.notShown + 1;
  return notShown > NOT_SHOWN_MAX
    ? readAgain({ kind: 'audit instead', because }, { ...setbacks, stale: 0 })
    : readAgain(
        { kind: 'try next node', pauses: notShown },
        { ...setbacks, notShown },
      );
}

function readAgain(next: NextReading, setbacks: Setbacks): SyncDecision {
  return { kind: 'read again', next, setbacks };
}

/** Whether an error is a reason why the list is not complete. */
export function isRefusal(error: unknown): error is DoubtError | EndNotShown {
  return error instanceof DoubtError || error instanceof EndNotShown;
}
