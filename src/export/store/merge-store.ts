/** Which ledgers have segments to merge. */
import { sql } from 'kysely';
import { formatInstant, type Micros, readInstant } from '../../core/time.ts';
import type { Database } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';
import type { MergeLimits } from '../merge/plan-merges.ts';
import type { ExportScope } from '../ports.ts';

export class MergeStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Until when any ledger is closed; undefined where none is. */
  closedTo(): Promise<Micros | undefined> {
    return mapDatabaseError('read until when ledgers are closed', async () => {
      const { rows } = await sql<{ closed_to: string | null }>`
        select max(to_time) as closed_to from mirror.coverage where not open`.execute(this.#db);
      const closedTo = rows[0]?.closed_to ?? undefined;
      return closedTo === undefined ? undefined : readInstant(closedTo);
    });
  }

  /** Ledgers that have two or more small segments with the same row form that end in one month before that instant. */
  mergeable({ before, bytesMax }: MergeLimits, ledgersMax: number): Promise<readonly ExportScope[]> {
    return mapDatabaseError('list what is to be merged', async () => {
      const { rows } = await sql<{ party_id: string; asset_id: string | null }>`
        select party_id, asset_id from mirror.segments
        where status = 'current' and not open and quarantine_reason is null
          and to_time <= ${formatInstant(before)}::timestamptz and 2 * bytes <= ${String(bytesMax)}::bigint
        group by party_id, asset_id
        having count(*) > count(distinct (date_trunc('month', to_time - interval '1 microsecond', 'UTC'), row_form))
        order by min(to_time), party_id limit ${ledgersMax}`.execute(this.#db);
      return rows.map((row) => ({ partyId: row.party_id, assetId: row.asset_id ?? undefined }));
    });
  }
}
