/** Loads every party that has something waiting. */
import { errorCode, errorLine, UnreachableError } from '../core/errors.ts';
import { type Verdict, worst } from '../core/verdict.ts';
import { type FaultySegment, type LoadDeps, loadParty, type PartyLoad } from './load-party.ts';

const CONCURRENCY = 2;
const PAGE_ROWS = 200;
/** Kept of each kind of trouble, for the run's evidence; all of them are counted. */
const KEPT_MAX = 100;

interface Totals {
  parties: number;
  segments: number;
  rows: bigint;
  removedRows: bigint;
  /** Rows whose `effect` contradicts their quantity and accounts; the evidence of their segments has them too. */
  effectsContradicted: bigint;
  heldBack: number;
  quarantinedCount: number;
  readonly quarantined: FaultySegment[];
  failedCount: number;
  readonly failed: { readonly partyId: string; readonly code: string; readonly message: string }[];
}

export interface LoadOutcome extends Readonly<Totals> {
  /**
   * `incomplete` where a segment was quarantined or a party's load failed; `suspicious` where what was loaded
   * contradicts itself.
   */
  readonly verdict: Verdict;
}

/**
 * A party that fails does not stop the others; a warehouse or store that cannot be reached does.
 * @throws UnreachableError
 */
export async function loadAll(
  deps: LoadDeps,
  signal: AbortSignal,
  onParty: (load: PartyLoad) => void = () => undefined,
): Promise<LoadOutcome> {
  const totals: Totals = {
    parties: 0,
    segments: 0,
    rows: 0n,
    removedRows: 0n,
    effectsContradicted: 0n,
    heldBack: 0,
    quarantinedCount: 0,
    quarantined: [],
    failedCount: 0,
    failed: [],
  };
  const stop = new AbortController();
  const either = AbortSignal.any([signal, stop.signal]);
  const parties = partiesInTurn(deps, either);
  const work = async (): Promise<void> => {
    for await (const partyId of parties) {
      try {
        const load = await loadParty(partyId, deps, either);
        count(totals, load);
        onParty(load);
      } catch (error) {
        if (either.aborted || error instanceof UnreachableError) throw error;
        countFailure(totals, partyId, error);
      }
    }
  };
  const lanes = Array.from({ length: CONCURRENCY }, () =>
    work().catch((error: unknown) => stop.abort(error)),
  );
  await Promise.all(lanes);
  signal.throwIfAborted();
  // The first error stops the other lane, and what that one then meets is not the reason.
  if (stop.signal.aborted) throw stop.signal.reason;
  return { verdict: verdictOf(totals), ...totals };
}

/** One generator shared by the lanes: calls of `next` queue up, so each party is handed out once. */
async function* partiesInTurn(deps: LoadDeps, signal: AbortSignal): AsyncGenerator<string> {
  let after: string | undefined;
  for (;;) {
    signal.throwIfAborted();
    const page = await deps.repository.partiesToLoad(after, PAGE_ROWS);
    yield* page;
    after = page.at(-1);
    if (page.length < PAGE_ROWS) return;
  }
}

function count(totals: Totals, load: PartyLoad): void {
  totals.parties += 1;
  totals.segments += load.segments;
  totals.rows += load.rows;
  totals.removedRows += load.removedRows;
  totals.effectsContradicted += load.effectsContradicted;
  totals.heldBack += load.heldBack;
  totals.quarantinedCount += load.quarantined.length;
  totals.quarantined.push(...load.quarantined.slice(0, KEPT_MAX - totals.quarantined.length));
}

function countFailure(totals: Totals, partyId: string, error: unknown): void {
  totals.failedCount += 1;
  if (totals.failed.length >= KEPT_MAX) return;
  totals.failed.push({ partyId, code: errorCode(error), message: errorLine(error) });
}

function verdictOf({ quarantinedCount, failedCount, heldBack, effectsContradicted }: Totals): Verdict {
  const isComplete = quarantinedCount === 0 && failedCount === 0 && heldBack === 0;
  return worst([
    isComplete ? 'complete' : 'incomplete',
    effectsContradicted === 0n ? 'complete' : 'suspicious',
  ]);
}
