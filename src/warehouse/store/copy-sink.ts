/**
 * Rows into mirror.ledger_entries by COPY, at the pace of the database; and its monthly partitions, made when the
 * first row of a month arrives.
 */
import { once } from 'node:events';
import type { Pool, PoolClient } from 'pg';
import { from as copyFrom, type CopyStreamQuery } from 'pg-copy-streams';
import { UnreachableError } from '../../errors/errors.ts';
import { LINE_COLUMNS } from '../../ledger/canonical.ts';
import { databaseError, mapDatabaseError } from '../../postgres/database-error.ts';

const ACTION = 'load segments';
/** How long the database may take to accept a chunk. */
const ACCEPT_TIMEOUT_MS = 120_000;
const MONTH = /^\d{4}-(?:0[1-9]|1[0-2])$/;
const LOCK_TIMEOUT_MS = 30_000;

/** Where a segment's rows go; a write that resolves makes room for the next. */
export interface RowSink {
  write(months: readonly MonthLines[]): Promise<void>;
  /** Resolves when the database has taken every row so far. */
  finish(): Promise<void>;
}

/** Whole lines of COPY input in text format, of one month (`2023-05`), whose partition must exist before they are sent. */
export interface MonthLines {
  readonly month: string;
  readonly lines: Buffer;
}

/**
 * A COPY sees only the partitions that existed when it began. So a chunk with rows of a new month ends
 * the COPY in hand, has the partition made, and begins another one in the same transaction.
 */
export function openCopySink(
  pool: Pool,
  client: PoolClient,
  signal: AbortSignal,
): RowSink {
  const known = new Set<string>();
  let open: CopyStreamQuery | undefined;
  let failure: Error | undefined;

  function begin() {
    open = client.query(
      copyFrom(`copy mirror.ledger_entries (${LINE_COLUMNS.join(', ')}) from stdin`),
    );
    // `once` hears errors only while it waits.
    return open.on('error', (error) => (failure ??= error));
  }

  /** After an error the stream has no connection and takes no more rows. */
  function refuseAfterFailure() {
    if (failure !== undefined) throw databaseError(ACTION, failure);
  }

  async function waitUntil(event: 'drain' | 'finish', copy: CopyStreamQuery) {
    const tooLong = AbortSignal.timeout(ACCEPT_TIMEOUT_MS);
    try {
      await once(copy, event, { signal: AbortSignal.any([signal, tooLong]) });
    } catch (error) {
      signal.throwIfAborted();
      if (!tooLong.aborted) throw databaseError(ACTION, error);
      throw new UnreachableError(
        `Cannot ${ACTION}: the database took no rows for ${ACCEPT_TIMEOUT_MS / 1000} s; look for locks and a full disk`,
        { code: 'DATABASE_STALLED', cause: error },
      );
    }
  }

  async function finish() {
    const copy = open;
    open = undefined;
    if (copy === undefined) return;
    refuseAfterFailure();
    copy.end();
    await waitUntil('finish', copy);
  }

  return {
    finish,
    async write(months) {
      const fresh = months.map(({ month }) => month).filter((month) => !known.has(month));
      if (fresh.length > 0) {
        await finish();
        await ensurePartitions(pool, fresh);
        for (const month of fresh) known.add(month);
      }
      refuseAfterFailure();
      const copy = open ?? begin();
      for (const { lines } of months) {
        if (!copy.write(lines)) await waitUntil('drain', copy);
        refuseAfterFailure();
      }
    },
  };
}

/**
 * Makes the partition of each month where it is missing; safe to be called by many at once. It is attached, not
 * created in place: that lock lets loads and readers of other months go on.
 * @param months as `2023-05`
 */
export async function ensurePartitions(
  pool: Pool,
  months: readonly string[],
): Promise<void> {
  const action = 'make a partition of the ledger entries';
  for (const month of months)
    await mapDatabaseError(action, () => pool.query(partitionStatement(month)));
}

function partitionStatement(month: string): string {
  if (!MONTH.test(month)) throw new RangeError(`not a month: ${month}`);
  const name = `ledger_entries_${month.replace('-', '_')}`;
  const first = `timestamp '${month}-01'`;
  // One statement block is one transaction. The advisory lock makes "is it attached?" reliable.
  return `do $$ begin
    perform set_config('lock_timeout', '${LOCK_TIMEOUT_MS}', true);
    perform pg_advisory_xact_lock(mirror.lock_key('partitions'));
    if not exists (select from pg_inherits where inhrelid = to_regclass('mirror.${name}')) then
      create table if not exists mirror.${name} (like mirror.ledger_entries);
      alter table mirror.ledger_entries attach partition mirror.${name}
        for values from (${first} at time zone 'UTC') to ((${first} + interval '1 month') at time zone 'UTC');
    end if;
  end $$`;
}
