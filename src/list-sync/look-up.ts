/** One party by filter: whether the source lists it, without reading the list. */
import type { VerdictWithEvidence } from '../core/verdict.ts';
import type { SyncDeps } from './context.ts';

/** A listed party is stored without a place in the list, which only a sync can prove. */
export async function lookUpParty(
  id: string,
  deps: Pick<SyncDeps, 'source' | 'store'>,
  signal: AbortSignal,
): Promise<VerdictWithEvidence> {
  const row = await deps.source.party(id, signal);
  if (row === undefined) return { verdict: 'complete', evidence: { listed: false } };
  const { wasKnown } = await deps.store.keepParty(row);
  return { verdict: 'complete', evidence: { listed: true, wasKnown } };
}
