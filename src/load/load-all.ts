/** Loads every party that has something waiting. */
import { errorCode, errorLine, UnreachableError } from '../core/errors.ts';
import { type Verdict, worst } from '../core/verdict.ts';
import { type FaultySegment, type LoadDeps, loadParty, type PartyLoad } from './load-party.ts';

const CONCURRENCY = 2;
const PAGE_ROWS = 200;
/** Kept of each kind of trouble, for the run's evidence; all of them are counted. */
const KEPT_MAX = 100;

/**
 * A party that fails does not stop the others; a warehouse or store that cannot be reached does.
 * @returns `incomplete` where a segment was quarantined or a party's load failed; `suspicious` where what was loaded
 *   contradicts itself
 * @throws UnreachableError
 */
export async function loadAll(
  deps: LoadDeps,
  signal: AbortSignal,
  onParty: (load: PartyLoad) => void = () => undefined,
): Promise<Readonly<Totals> & { readonly verdict: Verdict }> {
  const totals = noTotals();
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
  const lane = (): Promise<void> => work().catch((error: unknown) => stop.abort(error));
  await Promise.all(Array.from({ length: CONCURRENCY }, lane));
  signal.throwIfAborted();
  // The first error stops the other lane, and what that one then meets is not the reason.
  if (stop.signal.aborted) throw stop.signal.reason;
  return { verdict: judge(totals), ...totals };
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

function noTotals() {
  return {
    parties: 0,
    segments: 0,
    rows: 0n,
    removedRows: 0n,
    /** Rows whose `effect` contradicts their quantity and accounts; the evidence of their segments has them too. */
    effectsContradicted: 0n,
    heldBack: 0,
    quarantinedCount: 0,
    quarantined: [] as FaultySegment[],
    failedCount: 0,
    failed: [] as { readonly partyId: string; readonly code: string; readonly message: string }[],
  };
}
type Totals = ReturnType<typeof noTotals>;

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
  if (totals.failed.length < KEPT_MAX)
    totals.failed.push({ partyId, code: errorCode(error), message: errorLine(error) });
}

function judge({ quarantinedCount, failedCount, heldBack, effectsContradicted }: Totals): Verdict {
  return worst([
    quarantinedCount + failedCount + heldBack === 0 ? 'complete' : 'incomplete',
    effectsContradicted === 0n ? 'complete' : 'suspicious',
  ]);
}
