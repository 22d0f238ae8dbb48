/**
 * Writes rows into mirror.ledger_entries by COPY, at the pace of the database, and
 * creates a monthly partition when the first row of a month arrives.
 */
import { sql } from 'kysely';
import type { Pool } from 'pg';
import { LINE_COLUMNS } from '../../ledger/canonical.ts';
import { CopyIn } from '../../postgres/copy.ts';
import { execute } from '../../postgres/run-statement.ts';
import { poolRunner, type Session } from '../../postgres/session.ts';
import { statement } from '../../postgres/statement.ts';

const ACTION = 'load segments';
const COPY_STATEMENT = `copy mirror.ledger_entries (${LINE_COLUMNS.join(', ')}) from stdin`;
const MONTH = /^\d{4}-(?:0[1-9]|1[0-2])$/;
const LOCK_TIMEOUT_MS = 30_000;

/**
 * Accepts the rows of a segment. A write resolves once there is room for the next one.
 */
export interface RowSink {
  write(months: readonly MonthLines[]): Promise<void>;
  /** Resolves once the database has accepted every row written so far. */
  finish(): Promise<void>;
}

/** Whole lines of COPY input in text format, all of one month. */
export interface MonthLines {
  /**
   * The month of the lines, as `2023-05`. Its partition must exist before the lines are
   * sent.
   */
  readonly month: string;
  readonly lines: Buffer;
  /**
   * Whether no value needed escaping and no row has columns that this version does not
   * know, so that the lines are also valid as values separated by tabs.
   */
  readonly isPlain: boolean;
}

/**
 * Opens a sink in the transaction of `session`. Partitions are created through `pool`,
 * outside that transaction.
 */
export function openCopySink(
  pool: Pool,
  session: Session,
  signal: AbortSignal,
): RowSink {
  return new CopySink(pool, session, signal);
}

/**
 * A COPY sees only the partitions that existed when it began. A chunk with rows of a new
 * month therefore ends the current COPY, creates the partition, and starts a new COPY in
 * the same transaction.
 */
class CopySink implements RowSink {
  readonly #pool: Pool;
  readonly #session: Session;
  readonly #signal: AbortSignal;
  /** Months whose partition is visible to the current COPY. */
  readonly #ready = new Set<string>();
  #copy: CopyIn | undefined;

  constructor(pool: Pool, session: Session, signal: AbortSignal) {
    this.#pool = pool;
    this.#session = session;
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

    const copy = this.#copy ?? this.#begin();
    for (const { lines } of months) await copy.write(lines);
  }

  async finish(): Promise<void> {
    const copy = this.#copy;
    this.#copy = undefined;
    await copy?.finish();
  }

  #begin(): CopyIn {
    const copy = {
      statement: COPY_STATEMENT,
      action: ACTION,
      signal: this.#signal,
    };
    this.#copy = new CopyIn(this.#session, copy);
    return this.#copy;
  }
}

/**
 * Creates missing partitions; safe to call concurrently. A partition is attached rather
 * than created in place, because the lock that `attach` takes does not block loads and
 * readers of other months.
 * @param months as `2023-05`
 */
export async function ensurePartitions(
  pool: Pool,
  months: readonly string[],
): Promise<void> {
  const action = 'make a partition of the ledger entries';
  for (const month of months) {
    const attach = statement()`do ${sql.lit(attachBlock(month))}`;
    await execute(poolRunner(pool), action, attach);
  }
}

function attachBlock(month: string): string {
  if (!MONTH.test(month)) throw new RangeError(`not a month: ${month}`);
  const name = `ledger_entries_${month.replace('-', '_')}`;
  const first = `timestamp '${month}-01'`;
  // A block is one transaction. The advisory lock makes it safe to check whether the
  // partition is attached.
  return `begin
    perform set_config('lock_timeout', '${LOCK_TIMEOUT_MS}', true);
    perform pg_advisory_xact_lock(mirror.lock_key('partitions'));
    if not exists (select from pg_inherits where inhrelid = to_regclass('mirror.${name}')) then
      create table if not exists mirror.${name} (like mirror.ledger_entries);
      alter table mirror.ledger_entries attach partition mirror.${name}
        for values from (${first} at time zone 'UTC')
        to ((${first} + interval '1 month') at time zone 'UTC');
    end if;
  end`;
}
