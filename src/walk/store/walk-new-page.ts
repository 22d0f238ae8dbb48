/**
 * The common page as one statement: the lease is checked and locked, all rows are new, one chain grows.
 * A million parties are a thousand of these; everything else takes the longer way, in a transaction.
 */
import type { Pool } from 'pg';
import { errorCode, FencedError } from '../../core/errors.ts';
import type { PageCommit } from '../ports.ts';
import type { ClaimContext } from './walk-claim.ts';
import { cursorCircle, hashOf, PAGES_KEY } from './walk-pages.ts';
import { columnsOf } from './walk-rows.ts';

const UNIQUE_VIOLATION = '23505';
/** Under its name a connection keeps the plan, which takes as long to make as a hundred rows to store. */
const STATEMENT_NAME = 'insert a new page';
const STATEMENT = `
  with lease as (
    select walk_id from mirror.walks
    where walk_id = $1 and lease_token = $2 and state = 'open' for update),
  stored as (
    insert into mirror.parties (party_id, first_epoch, source_time, extra, epoch, pos, last_seen_walk)
    select row.party_id, $3::int, row.source_time, row.extra, $3::int, row.pos, lease.walk_id
    from lease, unnest($4::text[], $5::bigint[], $6::timestamptz[], $7::jsonb[])
      as row (party_id, pos, source_time, extra)),
  grown as (
    update mirror.chains set lo = $8, hi = $9, bottom_anchors = $10, top_anchors = $11
    from lease where chain_id = $12),
  recorded as (
    insert into mirror.walk_pages
      (walk_id, direction, after_hash, size, page_no, rows, new_rows, first_key, last_key, source_height)
    select walk_id, $13::text, $14::bytea, $15::int, $16::int, $17::int, $18::int, $19::text, $20::text, $21::numeric
    from lease)
  select walk_id from lease`;

/**
 * @returns false, and nothing was written, where one of the rows is known in any way
 * @throws FencedError, PermanentError `CURSOR_CYCLE`, or what the driver threw
 */
export async function insertNewPage(
  pool: Pool,
  context: ClaimContext,
  change: PageCommit,
  pageNo: number,
): Promise<boolean> {
  try {
    const values = valuesOf(context, change, pageNo);
    const { rows } = await pool.query({ name: STATEMENT_NAME, text: STATEMENT, values });
    if (rows.length === 0) throw new FencedError(`walk ${context.walkId}`);
    return true;
  } catch (error) {
    if (errorCode(error) !== UNIQUE_VIOLATION) throw error;
    if (constraintOf(error) === PAGES_KEY) throw cursorCircle(change.page);
    return false;
  }
}

function valuesOf(
  { epoch, walkId, token }: ClaimContext,
  { page, placed, chain }: PageCommit,
  pageNo: number,
): unknown[] {
  const { ids, positions, times, extras } = columnsOf(placed);
  const lease = [walkId, token];
  const rows = [epoch, ids, positions, times, extras];
  const anchors = [JSON.stringify(chain.bottom), JSON.stringify(chain.top)];
  const grown = [chain.lo, chain.hi, ...anchors, chain.chainId];
  const counts = [page.size, pageNo, page.rows, placed.length];
  const keys = [page.firstKey ?? null, page.lastKey ?? null];
  return [
    ...lease,
    ...rows,
    ...grown,
    page.role,
    hashOf(page.after),
    ...counts,
    ...keys,
    page.height ?? null,
  ];
}

function constraintOf(error: unknown): unknown {
  return typeof error === 'object' && error !== null && 'constraint' in error ? error.constraint : undefined;
}
