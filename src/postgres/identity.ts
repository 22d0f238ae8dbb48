/**
 * The identity of a mirror and of its source.
 */
import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import { builder } from './builder.ts';
import type { Database } from './database.ts';
import { execute, readRow } from './run-statement.ts';
import { statement } from './statement.ts';

export interface Identity {
  /** The id of this mirror. It never changes, and copies of the database share it. */
  readonly mirrorId: string;
  /**
   * The id in the names of queues and Redis keys. A copy of the database gets its own.
   */
  readonly queueId: string;
  /**
   * Identifies the lineage of the mirror's publications. A rebuild adopts the objects'
   * lineage.
   */
  readonly warehouseId: string;
  /**
   * The address of the source at the last complete sync of a list; null before the
   * first such sync.
   */
  readonly sourceUrl: string | null;
  /** Whether a rebuild from the objects is unfinished. */
  readonly isRebuilding: boolean;
}

/**
 * Returns a short, stable id of a source, for jobs. It does not depend on the URL's
 * credentials or query.
 */
export function sourceIdOf(url: URL): string {
  return createHash('sha256').update(shownUrl(url)).digest('hex').slice(0, 12);
}

/** Returns an address as it is stored and shown, without credentials or query. */
export function shownUrl(url: URL): string {
  return `${url.protocol}//${url.host}${url.pathname.replace(/\/+$/, '')}/`;
}

/**
 * Reads the identity.
 * @throws RetryableError, UnreachableError or PermanentError with a code `DATABASE_…`
 */
export function readIdentity(db: Database): Promise<Identity> {
  const identity = builder
    .selectFrom('mirror.identity')
    .select([
      'mirror_id as mirrorId',
      'queue_id as queueId',
      'warehouse_id as warehouseId',
      'source_url as sourceUrl',
      'is_rebuilding as isRebuilding',
    ]);
  return readRow(db, "read the mirror's identity", identity);
}

/**
 * Detects whether this database is a copy (a staging clone, or a dump restored
 * elsewhere), and if so gives it its own queues. Otherwise the workers of both databases
 * would take each other's jobs from a shared Redis. A promoted standby is still the same
 * database.
 *
 * If this role may not read the system identifier, only the database's oid is compared.
 * If the database has not moved, nothing is written, so a read-only database can be
 * opened too.
 */
export async function settleQueues(db: Database): Promise<void> {
  const action = 'look whether this database is a copy';
  const here = statement({
    oid: 'text?',
    mayReadSystem: 'boolean?',
    homeOid: 'text?',
    homeSystem: 'text?',
  })`
    select (select oid::text from pg_database where datname = current_database()) as oid,
      has_function_privilege('pg_control_system()', 'execute') as "mayReadSystem",
      home_oid as "homeOid", home_system as "homeSystem"
    from mirror.identity`;
  const found = await readRow(db, action, here);
  const { oid, homeOid, homeSystem } = found;
  const system =
    found.mayReadSystem === true ? await readSystemIdentifier(db) : null;
  if (homeOid === oid && (system === null || homeSystem === system)) return;

  // If several processes notice this at the same time, one makes the change and the
  // others find it done.
  const isElsewhere = sql<boolean>`(home_oid is distinct from ${oid}
    or (${system}::text is not null and home_system is distinct from ${system}))`;
  const isCopy = sql`home_oid is not null and (home_oid <> ${oid}
    or coalesce(home_system <> ${system}::text, false))`;
  const settle = builder
    .updateTable('mirror.identity')
    .set({
      queue_id: sql`case when ${isCopy} then gen_random_uuid() else queue_id end`,
      home_oid: oid,
      home_system: sql`coalesce(${system}::text, home_system)`,
    })
    .where(isElsewhere);
  await execute(db, action, settle);
}

async function readSystemIdentifier(db: Database): Promise<string | null> {
  const system = statement({ id: 'text?' })`
    select system_identifier::text as id from pg_control_system()`;
  return (await readRow(db, "read the server's identity", system)).id;
}

/**
 * Returns the prefix of queue names and Redis keys. Every mirror has its own, so several
 * mirrors can share a Redis, even if they mirror the same source.
 */
export function queuePrefix({ queueId }: Pick<Identity, 'queueId'>): string {
  return `lm-${queueId.replaceAll('-', '').slice(0, 16)}`;
}
