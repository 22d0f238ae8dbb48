/** A walk's lease: by the database's clock, under a token that no counter can hand out twice. */
import { sql, type Kysely, type Transaction } from 'kysely';
import { FencedError } from '../../core/errors.ts';
import type { MirrorSchema } from '../../postgres/schema.ts';

type Tx = Transaction<MirrorSchema>;

/** How long a worker that died keeps its walk; a living one renews it every three seconds. */
export const LEASE = '10 seconds';

export interface Lease {
  readonly walkId: bigint;
  readonly token: string;
}

/**
 * First in every transaction that writes: the row's lock makes this worker the only committer.
 * @throws FencedError where another worker has the walk
 */
export async function fence(tx: Tx, { walkId, token }: Lease): Promise<void> {
  const { rows } = await sql`select from mirror.walks
    where walk_id = ${walkId} and lease_token = ${token} and state = 'open' for update`.execute(tx);
  if (rows.length === 0) throw new FencedError(`walk ${walkId}`);
}

/** A successor need not wait for the end of the lease. */
export async function letGo(db: Kysely<MirrorSchema>, { walkId, token }: Lease): Promise<void> {
  await sql`update mirror.walks set lease_until = clock_timestamp()
    where walk_id = ${walkId} and lease_token = ${token} and state = 'open'`.execute(db);
}

export async function currentEpoch(tx: Tx): Promise<number> {
  const row = await tx
    .selectFrom('networks')
    .select((select) => select.fn.max('epoch').as('epoch'))
    .executeTakeFirstOrThrow();
  return row.epoch;
}

/** Ends a walk. What an audit had read on its own chains is given up; its rows stay. */
export async function closeWalk(tx: Tx, walkId: bigint, state: 'finished' | 'abandoned'): Promise<void> {
  await tx.deleteFrom('chains').where('audit_walk', '=', walkId).execute();
  await tx
    .updateTable('walks')
    .set({ state, lease_token: null, lease_until: null, finished_at: sql<string>`clock_timestamp()` })
    .where('walk_id', '=', walkId)
    .execute();
}
