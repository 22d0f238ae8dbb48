/** Resume state in Postgres, for mirrors without a Redis: two tables that a crash may empty. */
import { DatabaseError, type Pool, type QueryResultRow } from 'pg';
import { PermanentError, RetryableError, UnreachableError } from '../core/errors.ts';
import { classifyDatabaseCode } from '../core/faults.ts';
import { rateScheduleOf, wholeMs } from './rate-schedule.ts';
import { type ResumeState, checkedKey, decodeValue, encodeValue } from './resume-state.ts';

const QUERY_TIMEOUT_MS = 3_000;
/** Writers delete expired rows, a few each time and always more than they add. */
const SWEEP_EVERY = 64;
const SWEEP_ROWS_MAX = 256;

const GET =
  'select value::text as value from mirror.resume_state where key = $1 and expires_at > clock_timestamp()';
const SET = `insert into mirror.resume_state (key, value, expires_at)
  values ($1, $2::jsonb, clock_timestamp() + make_interval(secs => $3::float8))
  on conflict (key) do update set value = excluded.value, expires_at = excluded.expires_at`;
const SWEEP = `delete from mirror.resume_state where key in (
  select key from mirror.resume_state where expires_at <= clock_timestamp()
  order by expires_at limit $1 for update skip locked)`;
/** `reserveNext` in rate-schedule.ts, on the store's clock: $2 interval, $3 burst, $4 ahead at most, in seconds. */
const RESERVE = `insert into mirror.rate_budgets as budget (budget, next_at)
  values ($1, clock_timestamp() + make_interval(secs => $2::float8))
  on conflict (budget) do update set next_at = make_interval(secs => $2::float8) + least(
    greatest(budget.next_at, clock_timestamp()), clock_timestamp() + make_interval(secs => $4::float8))
  returning extract(epoch from next_at - clock_timestamp())::float8 - $2::float8 - $3::float8 as wait_seconds`;

interface PostgresStateOptions {
  /** Stays its owner's: closing the state leaves it open. */
  readonly pool: Pool;
  /** Two mirrors may share a database: each has a prefix of its own. */
  readonly prefix: string;
}

export class PostgresState implements ResumeState {
  readonly #pool: Pool;
  readonly #prefix: string;
  #setCount = 0;

  constructor({ pool, prefix }: PostgresStateOptions) {
    this.#pool = pool;
    this.#prefix = prefix;
  }

  async get(key: string): Promise<unknown> {
    const entry = checkedKey(this.#prefix, key);
    const [row] = await this.#query<{ value: string }>(`read ${key}`, GET, [entry]);
    return decodeValue(row?.value);
  }

  async set(key: string, value: unknown, ttlMs: number): Promise<void> {
    const entry = checkedKey(this.#prefix, key);
    await this.#query(`remember ${key}`, SET, [entry, encodeValue(key, value), ttlMs / 1000]);
    this.#setCount += 1;
    if (this.#setCount % SWEEP_EVERY === 0) await this.#query('clear expired state', SWEEP, [SWEEP_ROWS_MAX]);
  }

  async reserve(budget: string, ratePerSecond: number): Promise<{ waitMs: number }> {
    const pace = rateScheduleOf(ratePerSecond);
    const [row] = await this.#query<{ wait_seconds: number }>(`reserve a request of ${budget}`, RESERVE, [
      checkedKey(this.#prefix, budget),
      ...[pace.interval, pace.burst, pace.aheadMax].map((micros) => micros / 1e6),
    ]);
    return { waitMs: wholeMs(Math.max(0, (row?.wait_seconds ?? 0) * 1e6)) };
  }

  async close(): Promise<void> {
    // The pool is closed by its owner; nothing else is held.
  }

  async #query<Row extends QueryResultRow>(action: string, text: string, values: unknown[]): Promise<Row[]> {
    const query = { text, values, query_timeout: QUERY_TIMEOUT_MS };
    try {
      return (await this.#pool.query<Row>(query)).rows;
    } catch (error) {
      throw stateError(action, error);
    }
  }
}

/** Only an error that Postgres itself answered has a SQLSTATE; any other means that it was not reached. */
function stateError(action: string, error: unknown): Error {
  const state = error instanceof Error ? error.message : String(error);
  const sqlstate = error instanceof DatabaseError ? error.code : undefined;
  const fault = sqlstate === undefined ? 'unreachable' : classifyDatabaseCode(sqlstate);
  if (fault === 'unreachable') {
    return new UnreachableError(`Cannot ${action}: the database is not reachable (${state})`, {
      code: 'STATE_UNREACHABLE',
      cause: error,
    });
  }
  const details = { code: `STATE_POSTGRES_${sqlstate}`, meta: { sqlstate }, cause: error };
  return fault === 'retryable'
    ? new RetryableError(`Cannot ${action}: ${state}`, details)
    : new PermanentError(
        `Cannot ${action}: ${state}; run 'ledger-mirror migrate' where a table is missing`,
        details,
      );
}
