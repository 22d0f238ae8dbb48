/** Resume state in Postgres, for mirrors without a Redis: two tables that a crash may empty. */
import { DatabaseError, type Pool, type QueryResultRow } from 'pg';
import { classifyDatabaseCode } from '../core/faults.ts';
import type { RateSchedule } from './rate-schedule.ts';
import { StoredState } from './resume-state.ts';

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

export class PostgresState extends StoredState {
  protected override readonly store = 'the database';
  protected override readonly advice = "run 'ledger-mirror migrate' where a table is missing";
  readonly #options: PostgresStateOptions;
  #setCount = 0;

  constructor(options: PostgresStateOptions) {
    super();
    this.#options = options;
  }

  protected override async read(key: string): Promise<string | undefined> {
    const [row] = await this.#query<{ value: string }>(GET, [this.#entry(key)]);
    return row?.value;
  }

  protected override async write(key: string, text: string, ttlMs: number): Promise<void> {
    await this.#query(SET, [this.#entry(key), text, ttlMs / 1000]);
    this.#setCount += 1;
    if (this.#setCount % SWEEP_EVERY === 0) await this.#query(SWEEP, [SWEEP_ROWS_MAX]);
  }

  protected override async take(budget: string, schedule: RateSchedule): Promise<number> {
    const { interval, burst, aheadMax } = schedule;
    const seconds = [interval, burst, aheadMax].map((micros) => micros / 1e6);
    const [row] = await this.#query<{ wait_seconds: number }>(RESERVE, [this.#entry(budget), ...seconds]);
    return (row?.wait_seconds ?? 0) * 1e6;
  }

  /** Only an error that Postgres itself answered has a SQLSTATE; any other means that it was not reached. */
  protected override refusal(error: unknown): ReturnType<StoredState['refusal']> {
    const sqlstate = error instanceof DatabaseError ? error.code : undefined;
    const fault = sqlstate === undefined ? 'unreachable' : classifyDatabaseCode(sqlstate);
    if (fault === 'unreachable') return undefined;
    return { code: `STATE_POSTGRES_${sqlstate}`, meta: { sqlstate }, isRetryable: fault === 'retryable' };
  }

  async close(): Promise<void> {
    // The pool is closed by its owner; nothing else is held.
  }

  #entry(key: string): string {
    return `${this.#options.prefix}:${key}`;
  }

  async #query<Row extends QueryResultRow>(text: string, values: unknown[]): Promise<Row[]> {
    const query = { text, values, query_timeout: QUERY_TIMEOUT_MS };
    return (await this.#options.pool.query<Row>(query)).rows;
  }
}
