/** One mirror is of one source: which one is written into the warehouse when it is first asked. */
import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import type { Database } from './database.ts';
import { guarded } from './transaction.ts';

export interface Identity {
  readonly warehouseId: string;
  readonly sourceId: string | undefined;
  readonly sourceUrl: string | undefined;
}

/** Short and stable: Redis keys and queue names carry it. Credentials and query do not count. */
export function sourceIdOf(url: URL): string {
  return createHash('sha256')
    .update(`${url.protocol}//${url.host}${url.pathname.replace(/\/+$/, '')}`)
    .digest('hex')
    .slice(0, 12);
}

export async function readIdentity(db: Database): Promise<Identity> {
  const row = await guarded("read the mirror's identity", () =>
    db.selectFrom('identity').selectAll().executeTakeFirstOrThrow(),
  );
  return {
    warehouseId: row.warehouse_id,
    sourceId: row.source_id ?? undefined,
    sourceUrl: row.source_url ?? undefined,
  };
}

/**
 * Binds the mirror to its source at the first call. The address may change later (another node of the
 * same network); whether it is the same network is for the walk to tell from what the source lists.
 * @returns with `formerUrl` where it was another one until now
 */
export async function bindSource(
  db: Database,
  url: URL,
): Promise<{ readonly identity: Identity; readonly formerUrl: string | undefined }> {
  const shown = `${url.protocol}//${url.host}${url.pathname}`;
  const former = await readIdentity(db);
  if (former.sourceUrl === shown) return { identity: former, formerUrl: undefined };
  await guarded('bind the mirror to its source', () =>
    sql`update mirror.identity set source_id = coalesce(source_id, ${sourceIdOf(url)}), source_url = ${shown}`.execute(
      db,
    ),
  );
  return { identity: await readIdentity(db), formerUrl: former.sourceUrl };
}
