/** Rows into mirror.ledger_entries by COPY, at the pace of the database. */
import { once } from 'node:events';
import type { Pool, PoolClient } from 'pg';
import { from as copyFrom, type CopyStreamQuery } from 'pg-copy-streams';
import type { MonthLines, RowSink } from '../load/ports.ts';
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
export class CopySink implements RowSink {
  readonly #pool: Pool;
  readonly #client: PoolClient;
  readonly #statement: string;
  readonly #signal: AbortSignal;
  readonly #months = new Set<string>();
  #copy: CopyStreamQuery | undefined;
  #failure: Error | undefined;

  constructor(pool: Pool, client: PoolClient, columns: readonly string[], signal: AbortSignal) {
    this.#pool = pool;
    this.#client = client;
    this.#statement = `copy mirror.ledger_entries (${columns.join(', ')}) from stdin`;
    this.#signal = signal;
  }

  async write(months: readonly MonthLines[]): Promise<void> {
    const fresh = months.map(({ month }) => month).filter((month) => !this.#months.has(month));
    if (fresh.length > 0) {
      await this.finish();
      await ensurePartitions(this.#pool, fresh);
      for (const month of fresh) this.#months.add(month);
    }
    // After an error the stream has no connection and takes no more rows.
    this.#refuseAfterFailure();
    const copy = this.#copy ?? this.#begin();
    for (const { lines } of months) {
      if (!copy.write(lines)) await this.#event(copy, 'drain');
      this.#refuseAfterFailure();
    }
  }

  /** Resolves when the database has taken every row so far. */
  async finish(): Promise<void> {
    const copy = this.#copy;
    this.#copy = undefined;
    if (copy === undefined) return;
    this.#refuseAfterFailure();
    copy.end();
    await this.#event(copy, 'finish');
  }

  async #event(copy: CopyStreamQuery, name: 'drain' | 'finish'): Promise<void> {
    const tooLong = AbortSignal.timeout(ACCEPT_TIMEOUT_MS);
    try {
      await once(copy, name, { signal: AbortSignal.any([this.#signal, tooLong]) });
    } catch (error) {
      this.#signal.throwIfAborted();
      if (!tooLong.aborted) throw databaseError(ACTION, error);
      throw new UnreachableError(
        `Cannot ${ACTION}: the database took no rows for ${ACCEPT_TIMEOUT_MS / 1000} s; look for locks and a full disk`,
        { code: 'DATABASE_STALLED', cause: error },
      );
    }
  }

  #refuseAfterFailure(): void {
    if (this.#failure !== undefined) throw databaseError(ACTION, this.#failure);
  }

  #begin(): CopyStreamQuery {
    const copy = this.#client.query(copyFrom(this.#statement));
    // `once` hears errors only while it waits.
    copy.on('error', (error) => {
      this.#failure ??= error;
    });
    this.#copy = copy;
    return copy;
  }
}
