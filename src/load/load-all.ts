/** Loads every party that has something waiting. */
import { errorCode, errorLine, UnreachableError } from '../core/errors.ts';
import { type Verdict, worst } from '../core/verdict.ts';
import {
  type FaultySegment,
  type LoadDeps,
  type LoadOptions,
  loadParty,
  type PartyLoad,
} from './load-party.ts';

const CONCURRENCY = 2;
const PAGE_ROWS = 200;
/** Kept of each kind of trouble, for the run's evidence; all of them are counted. */
const KEPT_MAX = 100;

export interface LoadOutcome {
  /**
   * `incomplete` where a segment was quarantined or a party's load failed; `suspicious` where what was loaded
   * contradicts itself.
   */
  readonly verdict: Verdict;
  readonly parties: number;
  readonly segments: number;
  readonly rows: bigint;
  readonly removedRows: bigint;
  /** Rows whose `effect` contradicts their quantity and accounts; the evidence of their segments has them too. */
  readonly effectsContradicted: bigint;
  readonly heldBack: number;
  readonly quarantinedCount: number;
  readonly quarantined: readonly FaultySegment[];
  readonly failedCount: number;
  readonly failed: readonly { readonly partyId: string; readonly code: string; readonly message: string }[];
}

export interface LoadAllOptions extends LoadOptions {
  /** Only these; absent: every party with something to load. */
  readonly parties?: readonly string[];
  readonly onParty?: (load: PartyLoad) => void;
}

/**
 * A party that fails does not stop the others; a warehouse or store that cannot be reached does.
 * @throws UnreachableError
 */
export async function loadAll(
  deps: LoadDeps,
  signal: AbortSignal,
  options: LoadAllOptions = {},
): Promise<LoadOutcome> {
  const totals = new Totals();
  const stop = new AbortController();
  const either = AbortSignal.any([signal, stop.signal]);
  const parties = partiesInTurn(deps, options, either);
  const work = async (): Promise<void> => {
    for (;;) {
      const next = await parties.next();
      if (next.done === true) return;
      try {
        const load = await loadParty(next.value, deps, either, options);
        totals.add(load);
        options.onParty?.(load);
      } catch (error) {
        if (either.aborted || error instanceof UnreachableError) throw error;
        totals.fail(next.value, error);
      }
    }
  };
  const lanes = Array.from({ length: CONCURRENCY }, () =>
    work().catch((error: unknown) => {
      stop.abort(error);
      throw error;
    }),
  );
  const ended = await Promise.allSettled(lanes);
  signal.throwIfAborted();
  // The first error stops the other lane, and what that one then meets is not the reason.
  if (stop.signal.aborted) throw stop.signal.reason;
  for (const lane of ended) if (lane.status === 'rejected') throw lane.reason;
  return totals.outcome();
}

/** One generator shared by the lanes: calls of `next` queue up, so each party is handed out once. */
async function* partiesInTurn(
  deps: LoadDeps,
  options: LoadAllOptions,
  signal: AbortSignal,
): AsyncGenerator<string, undefined> {
  if (options.parties !== undefined) {
    yield* options.parties;
    return undefined;
  }
  let after: string | undefined;
  for (;;) {
    signal.throwIfAborted();
    const page = await deps.repository.partiesToLoad(after, PAGE_ROWS);
    yield* page;
    after = page.at(-1);
    if (page.length < PAGE_ROWS) return undefined;
  }
}

class Totals {
  #parties = 0;
  #segments = 0;
  #rows = 0n;
  #removedRows = 0n;
  #effectsContradicted = 0n;
  #heldBack = 0;
  #quarantinedCount = 0;
  #failedCount = 0;
  readonly #quarantined: FaultySegment[] = [];
  readonly #failed: { partyId: string; code: string; message: string }[] = [];

  add(load: PartyLoad): void {
    this.#parties += 1;
    this.#segments += load.segments;
    this.#rows += load.rows;
    this.#removedRows += load.removedRows;
    this.#effectsContradicted += load.effectsContradicted;
    this.#heldBack += load.heldBack;
    this.#quarantinedCount += load.quarantined.length;
    this.#quarantined.push(...load.quarantined.slice(0, KEPT_MAX - this.#quarantined.length));
  }

  fail(partyId: string, error: unknown): void {
    this.#failedCount += 1;
    if (this.#failed.length >= KEPT_MAX) return;
    this.#failed.push({ partyId, code: errorCode(error), message: errorLine(error) });
  }

  outcome(): LoadOutcome {
    const isComplete = this.#quarantinedCount === 0 && this.#failedCount === 0 && this.#heldBack === 0;
    return {
      verdict: worst([
        isComplete ? 'complete' : 'incomplete',
        this.#effectsContradicted === 0n ? 'complete' : 'suspicious',
      ]),
      parties: this.#parties,
      segments: this.#segments,
      rows: this.#rows,
      removedRows: this.#removedRows,
      effectsContradicted: this.#effectsContradicted,
      heldBack: this.#heldBack,
      quarantinedCount: this.#quarantinedCount,
      quarantined: this.#quarantined,
      failedCount: this.#failedCount,
      failed: this.#failed,
    };
  }
}
