/**
 * Writes rows into mirror.ledger_entries by COPY, at the pace of the database, and makes a monthly
 * partition when the first row of a month arrives.
 */
import { once } from 'node:events';
import type { Pool, PoolClient } from 'pg';
import { from as copyFrom, type CopyStreamQuery } from 'pg-copy-streams';
import { UnreachableError } from '../../errors/errors.ts';
import { LINE_COLUMNS } from '../../ledger/canonical.ts';
import { databaseError, mapDatabaseError } from '../../postgres/database-error.ts';

const ACTION = 'load segments';
const COPY_STATEMENT = `copy mirror.ledger_entries (${LINE_COLUMNS.join(', ')}) from stdin`;
/** How long the database may take to accept a chunk. */
const ACCEPT_TIMEOUT_MS = 120_000;
const MONTH = /^\d{4}-(?:0[1-9]|1[0-2])$/;
const LOCK_TIMEOUT_MS = 30_000;

/** Takes the rows of a segment. A write that resolves has made room for the next one. */
export interface RowSink {
  write(months: readonly MonthLines[]): Promise<void>;
  /** Resolves when the database has taken every row so far. */
  finish(): Promise<void>;
}

/** Whole lines of COPY input in text format, all of one month. */
export interface MonthLines {
  /** `2023-05`. Its partition must exist before the lines are sent. */
  readonly month: string;
  readonly lines: Buffer;
}

/** Opens a sink in the transaction of `client`. Partitions are made through `pool`, outside of it. */
export function openCopySink(
  pool: Pool,
  client: PoolClient,
  signal: AbortSignal,
): RowSink {
  return new CopySink(pool, client, signal);
}

/**
 * A COPY sees only the partitions that existed when it began. A chunk with rows of a new month therefore
 * ends the current COPY, makes the partition, and begins another COPY in the same transaction.
 */
class CopySink implements RowSink {
  readonly #pool: Pool;
  readonly #client: PoolClient;
  readonly #signal: AbortSignal;
  /** Months whose partition the current COPY sees. */
  readonly #ready = new Set<string>();
  #copy: CopyStreamQuery | undefined;
  #failure: Error | undefined;

  constructor(pool: Pool, client: PoolClient, signal: AbortSignal) {
    this.#pool = pool;
    this.#client = client;
    this.#signal = signal;
  }

  async write(months: readonly MonthLines[]): Promise<void> {
    const missing = months
      .map(({ month }) => month)
      .filter((month) => !this.#ready.has(month));
    if (missing.length > 0) {
      await this.finish();
      await ensurePartitions(this.#pool, missing);
      for (const month of missing) this.#ready.add(month);
    }

    this.#throwFailure();
    const copy = this.#copy ?? this.#begin();
    for (const { lines } of months) {
      if (!copy.write(lines)) await this.#waitUntil('drain', copy);
      this.#throwFailure();
    }
  }

  async finish(): Promise<void> {
    const copy = this.#copy;
    this.#copy = undefined;
    if (copy === undefined) return;
    this.#throwFailure();
    copy.end();
    await this.#waitUntil('finish', copy);
  }

  #begin(): CopyStreamQuery {
    const copy = this.#client.query(copyFrom(COPY_STATEMENT));
    // `once` notices errors only while it waits.
    copy.on('error', (error) => {
      this.#failure ??= error;
    });
    this.#copy = copy;
    return copy;
  }

  /** After an error the stream has lost its connection and takes no more rows. */
  #throwFailure(): void {
    if (this.#failure !== undefined) throw databaseError(ACTION, this.#failure);
  }

  async #waitUntil(event: 'drain' | 'finish', copy: CopyStreamQuery): Promise<void> {
    const timeout = AbortSignal.timeout(ACCEPT_TIMEOUT_MS);
    try {
      await once(copy, event, { signal: AbortSignal.any([this.#signal, timeout]) });
    } catch (error) {
      this.#signal.throwIfAborted();
      if (!timeout.aborted) throw databaseError(ACTION, error);
      const seconds = ACCEPT_TIMEOUT_MS / 1000;
      throw new UnreachableError(
        `Cannot ${ACTION}: the database took no rows for ${seconds} s; ` +
          'look for locks and a full disk',
        { code: 'DATABASE_STALLED', cause: error },
      );
    }
  }
}

/**
 * Makes the partitions that are missing; several callers may do so at once. A partition is attached and
 * not created in place, because the lock of `attach` lets loads and readers of other months go on.
 * @param months as `2023-05`
 */
export async function ensurePartitions(
  pool: Pool,
  months: readonly string[],
): Promise<void> {
  const action = 'make a partition of the ledger entries';
  for (const month of months) {
    await mapDatabaseError(action, () => pool.query(partitionStatement(month)));
  }
}

function partitionStatement(month: string): string {
  if (!MONTH.test(month)) throw new RangeError(`not a month: ${month}`);
  const name = `ledger_entries_${month.replace('-', '_')}`;
  const first = `timestamp '${month}-01'`;
  // A block is one transaction. The advisory lock makes the check whether it is attached reliable.
  return `do $$ begin
    perform set_config('lock_timeout', '${LOCK_TIMEOUT_MS}', true);
    perform pg_advisory_xact_lock(mirror.lock_key('partitions'));
    if not exists (select from pg_inherits where inhrelid = to_regclass('mirror.${name}')) then
      create table if not exists mirror.${name} (like mirror.ledger_entries);
      alter table mirror.ledger_entries attach partition mirror.${name}
        for values from (${first} at time zone 'UTC')
        to ((${first} + interval '1 month') at time zone 'UTC');
    end if;
  end $$`;
}
