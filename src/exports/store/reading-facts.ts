/**
 * Reads the facts about the mirror that are needed to read ledgers, besides their
 * coverage.
 */
import type { Database } from '../../postgres/database.ts';
import { readRow } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';

/** The facts that a reader needs, as stored in the tables. */
export interface StoredReadingFacts {
  /** Whether the source requires an asset in each request. */
  readonly isAssetDemanded: boolean;
  /**
   * The assets that the last nightly run was meant to cover; empty if it named no
   * assets.
   */
  readonly assetIds: readonly string[];
  /** The header of the newest segment; undefined if there is none. */
  readonly newestColumns: readonly string[] | undefined;
}

export async function readReadingFacts(
  db: Database,
): Promise<StoredReadingFacts> {
  const facts = statement({
    isAssetDemanded: 'boolean',
    assetIds: 'text[]',
    newestColumns: 'text[]?',
  })`
    select exists (select from mirror.source_state where profile @> '{"assetRequired": true}') as "isAssetDemanded",
      coalesce((select asset_ids from mirror.nightly_scope limit 1), '{}') as "assetIds",
      (select columns from mirror.segments order by segment_id desc limit 1) as "newestColumns"`;
  const { isAssetDemanded, assetIds, newestColumns } = await readRow(
    db,
    'read what readers of ledgers must know',
    facts,
  );
  return {
    isAssetDemanded,
    assetIds,
    newestColumns: newestColumns ?? undefined,
  };
}
