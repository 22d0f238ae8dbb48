/** The pages a walk committed: the guard against cursors that lead in a circle, across crashes too. */
import { createHash } from 'node:crypto';
import { sql, type Transaction } from 'kysely';
import { PermanentError } from '../../core/errors.ts';
import type { CommittedPage } from '../ports.ts';
import type { MirrorSchema } from '../../postgres/schema.ts';

/** The primary key that no page may meet twice. */
export const PAGES_KEY = 'walk_pages_pkey';

export interface PageRecord {
  readonly walkId: bigint;
  readonly pageNo: number;
  readonly newRows: number;
}

/**
 * Records a page. First pages have no cursor and may come again.
 * @throws PermanentError `CURSOR_CYCLE`
 */
export async function writePage(
  tx: Transaction<MirrorSchema>,
  { walkId, pageNo, newRows }: PageRecord,
  page: CommittedPage,
): Promise<void> {
  const { rows } = await sql`
    insert into mirror.walk_pages as known
      (walk_id, direction, after_hash, size, page_no, rows, new_rows, first_key, last_key, source_height)
    values (${walkId}, ${page.role}, ${hashOf(page.after)}, ${page.size}, ${pageNo}, ${page.rows}, ${newRows},
      ${page.firstKey ?? null}, ${page.lastKey ?? null}, ${page.height ?? null})
    on conflict (walk_id, direction, after_hash, size) do update
      set page_no = excluded.page_no, rows = excluded.rows, new_rows = known.new_rows + excluded.new_rows,
        first_key = excluded.first_key, last_key = excluded.last_key,
        source_height = excluded.source_height, committed_at = clock_timestamp()
      where excluded.direction in ('head', 'tail')
    returning page_no`.execute(tx);
  if (rows.length === 0) throw cursorCircle(page);
}

export function cursorCircle(page: CommittedPage): PermanentError {
  return new PermanentError(
    `Cannot commit the page behind ${page.firstKey ?? 'nothing'}: its cursor was followed before in this walk; the source leads in a circle`,
    { code: 'CURSOR_CYCLE', meta: { direction: page.role, lastKey: page.lastKey } },
  );
}

/** Cursors are of any length; their hashes are not. */
export function hashOf(cursor: string | undefined): Buffer {
  return createHash('sha256')
    .update(cursor ?? '')
    .digest();
}
