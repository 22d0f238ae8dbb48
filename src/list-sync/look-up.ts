/** One party by filter: whether the source lists it, without reading the list. */
import type { Outcome } from '../core/verdict.ts';
import type { ListSource } from './ports.ts';
import type { ListStore } from './store/list-store.ts';

export interface LookUpDeps {
  readonly source: ListSource;
  readonly store: Pick<ListStore, 'keepParty'>;
}

/** A listed party is stored without a place in the list, which only a sync can prove. */
export async function lookUpParty(id: string, deps: LookUpDeps, signal: AbortSignal): Promise<Outcome> {
  const row = await deps.source.party(id, signal);
  if (row === undefined) return { verdict: 'complete', evidence: { listed: false } };
  const { wasKnown } = await deps.store.keepParty(row);
  return { verdict: 'complete', evidence: { listed: true, wasKnown } };
}
