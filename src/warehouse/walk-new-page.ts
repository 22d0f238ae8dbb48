/**
 * The common page as one statement: the lease is checked and locked, all rows are new, one chain grows.
 * A million parties are a thousand of these; everything else takes the longer way, in a transaction.
 */
import { sql } from 'kysely';
import { errorCode, FencedError } from '../core/errors.ts';
import type { PageCommit } from '../walk/ports.ts';
import type { Database } from './database.ts';
import type { ClaimContext } from './walk-claim.ts';
import { cursorCircle, hashOf, PAGES_KEY } from './walk-pages.ts';
import { columnsOf } from './walk-rows.ts';

const UNIQUE_VIOLATION = '23505';

/**
 * @returns false, and nothing was written, where one of the rows is known in any way
 * @throws FencedError, PermanentError `CURSOR_CYCLE`, or what the driver threw
 */
export async function insertNewPage(
  db: Database,
  context: ClaimContext,
  change: PageCommit,
  pageNo: number,
): Promise<boolean> {
  try {
    const { rows } = await statement(context, change, pageNo).execute(db);
    if (rows.length === 0) throw new FencedError(`walk ${context.walkId}`);
    return true;
  } catch (error) {
    if (errorCode(error) !== UNIQUE_VIOLATION) throw error;
    if (constraintOf(error) === PAGES_KEY) throw cursorCircle(change.page);
    return false;
  }
}

function statement(
  { epoch, walkId, token }: ClaimContext,
  { page, placed, chain }: PageCommit,
  pageNo: number,
): ReturnType<typeof sql> {
  const { ids, positions, times, extras } = columnsOf(placed);
  return sql`
    with lease as (
      select walk_id from mirror.walks
      where walk_id = ${walkId} and lease_token = ${token} and state = 'open' for update),
    stored as (
      insert into mirror.parties (party_id, first_epoch, source_time, extra, epoch, pos, last_seen_walk)
      select row.party_id, ${epoch}::int, row.source_time, row.extra, ${epoch}::int, row.pos, lease.walk_id
      from lease, unnest(${ids}::text[], ${positions}::bigint[], ${times}::timestamptz[], ${extras}::jsonb[])
        as row (party_id, pos, source_time, extra)),
    grown as (
      update mirror.chains set lo = ${chain.lo}, hi = ${chain.hi},
        bottom_anchors = ${JSON.stringify(chain.bottom)}, top_anchors = ${JSON.stringify(chain.top)}
      from lease where chain_id = ${chain.chainId}),
    recorded as (
      insert into mirror.walk_pages
        (walk_id, direction, after_hash, size, page_no, rows, new_rows, first_key, last_key, source_height)
      select walk_id, ${page.role}::text, ${hashOf(page.after)}::bytea, ${page.size}::int, ${pageNo}::int,
        ${page.rows}::int, ${placed.length}::int, ${page.firstKey ?? null}::text, ${page.lastKey ?? null}::text,
        ${page.height ?? null}::numeric
      from lease)
    select walk_id from lease`;
}

function constraintOf(error: unknown): unknown {
  return typeof error === 'object' && error !== null && 'constraint' in error ? error.constraint : undefined;
}
