/** `mirror.places` became a view (0004): those who may read the other views may read it as well. */
import { type Kysely, sql } from 'kysely';

const GRANT = `do $$ begin
  if exists (select from pg_roles where rolname = 'mirror_reader') then
    grant select on mirror.places to mirror_reader;
  end if;
end $$`;

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql.raw(GRANT).execute(db);
}
