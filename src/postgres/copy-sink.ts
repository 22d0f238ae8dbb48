/** Rows into mirror.ledger_entries by COPY, at the pace of the database. */
import { once } from 'node:events';
import type { Pool, PoolClient } from 'pg';
import { from as copyFrom, type CopyStreamQuery } from 'pg-copy-streams';
import type { RowSink } from '../load/ports.ts';
import { UnreachableError } from '../core/errors.ts';
import { ensurePartitions } from './partitions.ts';
import { databaseError } from './transaction.ts';

const ACTION = 'load segments';
/** How long the database may take to accept a chunk. */
const ACCEPT_TIMEOUT_MS = 120_000;

/**
 * A COPY sees only the partitions that existed when it began. So a chunk with rows of a new month ends
 * the COPY in hand, has the partition made, and begins another one in the same transaction.
 */
export function openCopySink(
  pool: Pool,
  client: PoolClient,
  columns: readonly string[],
  signal: AbortSignal,
): RowSink & { finish(): Promise<void> } {
  const known = new Set<string>();
  let open: CopyStreamQuery | undefined;
  let failure: Error | undefined;

  function begin(): CopyStreamQuery {
    open = client.query(copyFrom(`copy mirror.ledger_entries (${columns.join(', ')}) from stdin`));
    // `once` hears errors only while it waits.
    return open.on('error', (error) => (failure ??= error));
  }

  /** After an error the stream has no connection and takes no more rows. */
  function refuseAfterFailure(): void {
    if (failure !== undefined) throw databaseError(ACTION, failure);
  }

  async function waitUntil(event: 'drain' | 'finish', copy: CopyStreamQuery): Promise<void> {
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

  /** Resolves when the database has taken every row so far. */
  async function finish(): Promise<void> {
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
