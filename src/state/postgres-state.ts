/**
 * Resume state in Postgres, for mirrors without Redis. It uses two unlogged tables, which
 * may be empty after a crash.
 */
import { DatabaseError, type Pool } from 'pg';
import { classifyDatabaseCode } from '../errors/faults.ts';
import {
  AHEAD_MAX_MICROS,
  BURST_MICROS,
  keepIn,
  type ResumeState,
} from './resume-state.ts';

const QUERY_TIMEOUT_MS = 3_000;
/**
 * After how many writes a writer deletes a batch of expired rows. The batch is larger
 * than this number, so expired rows cannot accumulate.
 */
const SWEEP_EVERY = 64;
const SWEEP_ROWS_MAX = 256;

const GET =
  'select value::text as value from mirror.resume_state where key = $1 and ' +
  'expires_at > clock_timestamp()';
const SET = `insert into mirror.resume_state (key, value, expires_at)
  values ($1, $2::jsonb, clock_timestamp() + make_interval(secs => $3::float8))
  on conflict (key) do update set value = excluded.value, expires_at = excluded.expires_at`;
const SWEEP = `delete from mirror.resume_state where key in (
  select key from mirror.resume_state where expires_at <= clock_timestamp()
  order by expires_at limit $1 for update skip locked)`;
/** Reserves a request; $2 is the interval in seconds. */
const RESERVE = `insert into mirror.rate_budgets as budget (budget, next_at)
  values ($1, clock_timestamp() + make_interval(secs => $2::float8))
  on conflict (budget) do update set next_at = make_interval(secs => $2::float8) + least(
    greatest(budget.next_at, clock_timestamp()), clock_timestamp() + interval '${AHEAD_MAX_MICROS} us')
  returning extract(epoch from next_at - interval '${BURST_MICROS} us' - clock_timestamp())::float8 - $2::float8 as value`;

/**
 * Opens resume state in Postgres.
 * @param pool stays open when the state is closed
 * @param prefix separates mirrors that share a database
 */
export function openPostgresState(pool: Pool, prefix: string): ResumeState {
  let setCount = 0;
  /**
   * Runs one statement.
   * @returns the value of the first row
   */
  const run = async (text: string, ...values: (string | number)[]) => {
    const query = { text, values, query_timeout: QUERY_TIMEOUT_MS };
    return (await pool.query<{ value: string }>(query)).rows[0]?.value;
  };
  return keepIn({
    name: 'the database',
    advice: "run 'ledger-mirror migrate' where a table is missing",
    read: (key) => run(GET, `${prefix}:${key}`),
    write: async (key, text, ttlMs) => {
      await run(SET, `${prefix}:${key}`, text, ttlMs / 1000);
      setCount += 1;
      if (setCount % SWEEP_EVERY === 0) await run(SWEEP, SWEEP_ROWS_MAX);
    },
    take: async (budget, intervalMicros) =>
      Number(await run(RESERVE, `${prefix}:${budget}`, intervalMicros / 1e6)) *
      1e6,
    // Only an error reported by Postgres itself has an SQLSTATE.
    refusal: (error) => {
      const sqlstate = error instanceof DatabaseError ? error.code : undefined;
      const fault =
        sqlstate === undefined ? 'unreachable' : classifyDatabaseCode(sqlstate);
      if (fault === 'unreachable') return undefined;
      return {
        code: `STATE_POSTGRES_${sqlstate}`,
        isRetryable: fault === 'retryable',
      };
    },
    close: async () => undefined,
  });
}
