/** A published segment that is not what its manifest says waits for an export that replaces it. */
import { evidenceJson } from '../../core/json-value.ts';
import type { Database } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';

type NamedSegment =
  | { readonly object_key: string }
  /** `loaded_at: null` leaves alone what another load has brought meanwhile. */
  | { readonly segment_id: bigint; readonly loaded_at?: null };

/** One that was replaced meanwhile stays as it is. */
export async function quarantineSegment(
  db: Database,
  named: NamedSegment,
  reason: { readonly code: string; readonly message: string },
): Promise<void> {
  await mapDatabaseError('quarantine a segment', () =>
    db
      .updateTable('segments')
      .set({ quarantine_reason: evidenceJson(reason) })
      .where('status', '=', 'current')
      .where((eb) => eb.and(named))
      .execute(),
  );
}
