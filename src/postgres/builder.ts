/**
 * Builds typed statements on the tables of the schema `mirror`. It has no connection and
 * cannot run them.
 */
import {
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
} from 'kysely';
import type { Schema } from './schema.generated.ts';

/**
 * Throws if a statement is run on it. Kysely's own driver for this purpose returns no
 * rows for any statement, which would hide the mistake.
 */
class BuildOnlyDriver extends DummyDriver {
  override acquireConnection(): Promise<never> {
    throw new TypeError(
      'Run a built statement with readRows, readRow, findRow or execute',
    );
  }
}

/**
 * Builds plain statements about one table: `builder.selectFrom('mirror.runs').select(…)`.
 * Run them with the functions of run-statement.ts, like statements written as SQL.
 */
export const builder: Kysely<Schema> = new Kysely<Schema>({
  dialect: {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () => new BuildOnlyDriver(),
    createIntrospector: (db) => new PostgresIntrospector(db),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  },
});
