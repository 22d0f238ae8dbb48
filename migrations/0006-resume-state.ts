/** Resume points for mirrors without Redis. */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  // Hints for a mirror without Redis. Losing them costs at most the piece of work in
  // progress.
  `create unlogged table mirror.resume_state (
    key text primary key,
    value jsonb not null,
    expires_at timestamptz not null)`,
  'create index resume_state_expired on mirror.resume_state (expires_at)',
  `create unlogged table mirror.rate_budgets (
    budget text primary key,
    next_at timestamptz not null)`,
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
