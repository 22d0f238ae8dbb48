/** What each run asked of the source, added up over every process that works for it. */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  `create table mirror.source_costs (
    run_id uuid primary key references mirror.runs,
    list_requests bigint not null,
    export_requests bigint not null,
    retries bigint not null,
    failures bigint not null,
    bytes bigint not null,
    waited_ms bigint not null)`,
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
