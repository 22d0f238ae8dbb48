/** The identity of a mirror, and of its source. */
import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import { builder } from './builder.ts';
import type { Database } from './database.ts';
import { execute, readRow } from './run-statement.ts';
import { statement } from './statement.ts';

export interface Identity {
  /** The id of this mirror. It never changes, and copies of the database share it. */
  readonly mirrorId: string;
  /** Names of queues and Redis keys contain it. A copy of the database has its own. */
  readonly queueId: string;
  /** The lineage of its publications. A rebuild adopts that of the objects. */
  readonly warehouseId: string;
  /**
   * The address of the source that the last complete sync of a list read; null before the
   * first.
   */
  readonly sourceUrl: string | null;
  /** A rebuild from the objects has begun, and has not finished. */
  readonly isRebuilding: boolean;
}

/**
 * Returns a short and stable id of a source, for jobs. Credentials and query do not
 * count.
 */
export function sourceIdOf(url: URL): string {
  return createHash('sha256').update(shownUrl(url)).digest('hex').slice(0, 12);
}

/** Returns an address as it is stored and shown: without credentials and query. */
export function shownUrl(url: URL): string {
  return `${url.protocol}//${url.host}${url.pathname.replace(/\/+$/, '')}/`;
}

/** @throws RetryableError, UnreachableError or PermanentError with a code `DATABASE_…` */
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
 * Notices that this database is a copy of another one (a clone for staging, a dump that
 * was restored elsewhere), and gives it queues of its own: otherwise the workers of both
 * would take each other's jobs from a Redis that they share. A standby that was promoted
 * is the same database.
 *
 * A system identifier that this role may not read says nothing. Nothing is written if
 * the database is where it was, so that a read-only one can be opened too.
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

  // Of processes that notice it together, one decides: the others find it settled.
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
 * Returns the prefix of queue names and Redis keys. Every mirror has its own, so that
 * several mirrors can share a Redis, even of one source.
 */
export function queuePrefix({ queueId }: Pick<Identity, 'queueId'>): string {
  return `lm-${queueId.replaceAll('-', '').slice(0, 16)}`;
}
