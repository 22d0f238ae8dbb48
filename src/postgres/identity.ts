/** Which mirror this is, and of which source: the address that was proven by a sync, and the one configured now. */
import { createHash } from 'node:crypto';
import { builder } from './builder.ts';
import type { Database } from './database.ts';
import { readRow } from './run-statement.ts';

export interface Identity {
  /** This database's own, for ever: queues and Redis keys carry it. */
  readonly mirrorId: string;
  /** The lineage of its publications: a rebuild takes over that of the objects. */
  readonly warehouseId: string;
  /** The address that the last sync of a list has read; null before the first. */
  readonly sourceUrl: string | null;
  /** A rebuild from the objects was begun and not finished. */
  readonly isRebuilding: boolean;
}

/** Short and stable: a job carries it. Credentials and query do not count. */
export function sourceIdOf(url: URL): string {
  return createHash('sha256').update(shownUrl(url)).digest('hex').slice(0, 12);
}

/** An address as it is kept and shown: without credentials and query. */
export function shownUrl(url: URL): string {
  return `${url.protocol}//${url.host}${url.pathname.replace(/\/+$/, '')}/`;
}

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

/** Queue names and Redis keys begin with it: any mirrors can share a Redis, two of one source too. */
export function queuePrefix({ mirrorId }: Pick<Identity, 'mirrorId'>): string {
  return `lm-${mirrorId.replaceAll('-', '').slice(0, 16)}`;
}
