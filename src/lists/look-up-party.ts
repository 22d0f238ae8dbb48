/** Looks up one party at the source, apart from any sync of the list. */
import type { VerdictWithEvidence } from '../errors/verdict.ts';
import type { SyncDeps } from './sync-context.ts';

/**
 * Looks up one party by its id and records whether the source lists it. The party is
 * stored without a position in the list, which only a sync can prove.
 */
export async function lookUpParty(
  id: string,
  deps: Pick<SyncDeps, 'source' | 'store'>,
  signal: AbortSignal,
): Promise<VerdictWithEvidence> {
  const row = await deps.source.party(id, signal);
  const evidence = row
    ? { listed: true, ...(await deps.store.keepParty(row)) }
    : { listed: false };
  return { verdict: 'complete', evidence };
}
