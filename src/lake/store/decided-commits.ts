/** Commits of the lake that the database decides, where the object store would let two writers put one. */
import { sql } from 'kysely';
import type { Pool } from 'pg';
import type { Database } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';
import type { LakeTable } from '../tables/columns.ts';
import type { CommitRegister, DecidedCommit } from '../ports.ts';

const ACTION = 'decide a commit of the lake';

export class DecidedCommits implements CommitRegister {
  readonly #pool: Pool;

  constructor(pool: Pool) {
    this.#pool = pool;
  }

  async decidedCommit(store: string, table: LakeTable): Promise<DecidedCommit | undefined> {
    const { rows } = await mapDatabaseError(ACTION, () =>
      this.#pool.query<{ version: bigint; content: Buffer | null }>(
        'select version, content from mirror.lake_commits where store = $1 and name = $2',
        [store, table],
      ),
    );
    const [row] = rows;
    return row && { version: Number(row.version), content: row.content ?? undefined };
  }

  async decideCommit(
    store: string,
    table: LakeTable,
    { version, content }: { readonly version: number; readonly content: Buffer },
    after: number | undefined,
  ): Promise<boolean> {
    const statement =
      after === undefined
        ? `insert into mirror.lake_commits (store, name, version, content) values ($1, $2, $3, $4)
            on conflict do nothing`
        : `update mirror.lake_commits set version = $3, content = $4
            where store = $1 and name = $2 and version = $5`;
    const given = [store, table, version, content, ...(after === undefined ? [] : [after])];
    const { rowCount } = await mapDatabaseError(ACTION, () => this.#pool.query(statement, given));
    return rowCount === 1;
  }

  async forgetContent(store: string, table: LakeTable, version: number): Promise<void> {
    await mapDatabaseError(ACTION, () =>
      this.#pool.query(
        'update mirror.lake_commits set content = null where store = $1 and name = $2 and version = $3',
        [store, table, version],
      ),
    );
  }
}

/** Whether a build has met that this store lets two writers put one commit. */
export async function isLakeDecidedHere(db: Database, store: string): Promise<boolean> {
  return mapDatabaseError('ask who decides the commits of the lake', async () => {
    const found = await sql<{ is: boolean }>`
      select exists (select from mirror.lake_commits where store = ${store}) as is`.execute(db);
    return found.rows[0]?.is === true;
  });
}
