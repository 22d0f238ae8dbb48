/** One party by filter: whether the source lists it, without walking the list. */
import type { Outcome } from '../core/verdict.ts';
import type { ListSource, WalkBooks } from './ports.ts';

export interface LookUpDeps {
  readonly source: ListSource;
  readonly books: Pick<WalkBooks, 'keepParty'>;
}

/** A party that is listed is kept; it gets no place in the list by that, which only a walk can prove. */
export async function lookUpParty(id: string, deps: LookUpDeps, signal: AbortSignal): Promise<Outcome> {
  const row = await deps.source.party(id, signal);
  if (row === undefined) return { verdict: 'complete', evidence: { listed: false } };
  const { wasKnown } = await deps.books.keepParty(row);
  return { verdict: 'complete', evidence: { listed: true, wasKnown } };
}
