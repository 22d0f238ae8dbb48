/** The identity of a mirror, and of its source. */
import { createHash } from 'node:crypto';
import { builder } from './builder.ts';
import type { Database } from './database.ts';
import { readRow } from './run-statement.ts';

export interface Identity {
  /**
   * The id of this database. It never changes; names of queues and Redis keys contain it.
   */
  readonly mirrorId: string;
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
      'warehouse_id as warehouseId',
      'source_url as sourceUrl',
      'is_rebuilding as isRebuilding',
    ]);
  return readRow(db, "read the mirror's identity", identity);
}

/**
 * Returns the prefix of queue names and Redis keys. Every mirror has its own, so that
 * several mirrors can share a Redis, even of one source.
 */
export function queuePrefix({
  mirrorId,
}: {
  readonly mirrorId: string;
}): string {
  return `lm-${mirrorId.replaceAll('-', '').slice(0, 16)}`;
}
