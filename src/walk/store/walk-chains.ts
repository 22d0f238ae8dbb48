/** Chains as rows, and questions about what stands in them. */
import { sql, type Kysely, type RawBuilder, type Selectable, type Transaction } from 'kysely';
import { formatInstant, parseInstant } from '../../core/time.ts';
import type { Anchor, Chain, ChainDraft, Direction, ListName, PlacedGroup } from '../ports.ts';
import type { MirrorSchema } from '../../postgres/schema.ts';

type Db = Kysely<MirrorSchema>;

export interface Axis {
  readonly list: ListName;
  readonly epoch: number;
  /** An audit counts its own chains, and in them only rows that it has met itself. */
  readonly auditWalk: bigint | undefined;
}

/** Lowest first. */
export async function readChains(db: Db, axis: Axis): Promise<readonly Chain[]> {
  const rows = await db
    .selectFrom('chains')
    .selectAll()
    .where('epoch', '=', axis.epoch)
    .where('list', '=', axis.list)
    .where(sql<boolean>`audit_walk is not distinct from ${axis.auditWalk ?? null}::bigint`)
    .orderBy('lo')
    .execute();
  return rows.map(toChain);
}

function toChain(row: Selectable<MirrorSchema['chains']>): Chain {
  return {
    chainId: row.chain_id,
    lo: BigInt(row.lo),
    hi: BigInt(row.hi),
    hasTail: row.has_tail,
    head:
      !row.has_head || row.head_walk === null
        ? undefined
        : {
            walkId: row.head_walk,
            height: row.head_height === null ? undefined : BigInt(row.head_height),
            time: row.head_time === null ? undefined : parseInstant(row.head_time),
          },
    bottom: row.bottom_anchors.filter(isAnchor),
    top: row.top_anchors.filter(isAnchor),
  };
}

/** What an older version wrote otherwise is no anchor: the walk goes round by the other side. */
function isAnchor(value: unknown): value is Anchor {
  return (
    typeof value === 'object' &&
    value !== null &&
    'cursor' in value &&
    typeof value.cursor === 'string' &&
    'baseUrl' in value &&
    typeof value.baseUrl === 'string' &&
    'held' in value &&
    Array.isArray(value.held)
  );
}

/** @returns the id of the chain, new where it had none */
export async function writeChain(
  tx: Transaction<MirrorSchema>,
  axis: Axis,
  chain: ChainDraft,
  absorbed: readonly bigint[],
): Promise<bigint> {
  if (absorbed.length > 0) await tx.deleteFrom('chains').where('chain_id', 'in', absorbed).execute();
  const values = {
    lo: chain.lo,
    hi: chain.hi,
    has_tail: chain.hasTail,
    has_head: chain.head !== undefined,
    head_walk: chain.head?.walkId ?? null,
    head_height: chain.head?.height ?? null,
    head_time: chain.head?.time === undefined ? null : formatInstant(chain.head.time),
    bottom_anchors: JSON.stringify(chain.bottom),
    top_anchors: JSON.stringify(chain.top),
  };
  if (chain.chainId !== undefined) {
    await tx.updateTable('chains').set(values).where('chain_id', '=', chain.chainId).execute();
    return chain.chainId;
  }
  const inserted = await tx
    .insertInto('chains')
    .values({ epoch: axis.epoch, list: axis.list, audit_walk: axis.auditWalk ?? null, ...values })
    .returning('chain_id')
    .executeTakeFirstOrThrow();
  return inserted.chain_id;
}

/** One look into the index for each id, whatever the planner thinks of the table's size. */
function placeOf(epoch: number): RawBuilder<unknown> {
  return sql`select party_id, pos, last_seen_walk from mirror.parties
    where party_id = asked.id and epoch = ${epoch} limit 1`;
}

/** Where these groups stand, where that counts. */
export async function locate(
  db: Db,
  axis: Axis,
  groups: readonly string[],
): Promise<ReadonlyMap<string, bigint>> {
  if (groups.length === 0) return new Map();
  const audit = axis.auditWalk ?? null;
  const source =
    axis.list === 'parties'
      ? sql`select party_id as "group", pos
            from unnest(${groups}::text[]) as asked (id), lateral (${placeOf(axis.epoch)}) as known
            where ${audit}::bigint is null or last_seen_walk = ${audit}::bigint`
      : sql`select height::text as "group", height as pos from unnest(${groups}::numeric[]) as height`;
  const { rows } = await sql<{ group: string; pos: string | bigint }>`
    select place."group", place.pos from (${source}) as place
    where exists (select from mirror.chains chain
      where chain.epoch = ${axis.epoch} and chain.list = ${axis.list}
        and chain.audit_walk is not distinct from ${audit}::bigint
        and place.pos between chain.lo and chain.hi)`.execute(db);
  return new Map(rows.map(({ group, pos }) => [group, BigInt(pos)]));
}

/** The groups of a chain from one edge inward; rows that are known to be gone are passed over. */
export async function readEdge(
  db: Db,
  axis: Axis,
  chain: Chain,
  end: 'top' | 'bottom',
  groupsMax: number,
): Promise<readonly PlacedGroup[]> {
  return db.transaction().execute(async (tx) => {
    // A table that has just been filled has no statistics yet: a plan without them sorts the whole chain.
    await sql`set local enable_sort = off`.execute(tx);
    return readGroups(tx, axis, chain, end, groupsMax);
  });
}

async function readGroups(
  db: Db,
  axis: Axis,
  chain: Chain,
  end: 'top' | 'bottom',
  groupsMax: number,
): Promise<readonly PlacedGroup[]> {
  const order = end === 'top' ? sql`desc` : sql`asc`;
  const audit = axis.auditWalk ?? null;
  const counts = sql`gone_since is null and (${audit}::bigint is null or last_seen_walk = ${audit}::bigint)`;
  if (axis.list === 'parties') {
    const { rows } = await sql<{ party_id: string; pos: bigint }>`
      select party_id, pos from mirror.parties
      where epoch = ${axis.epoch} and pos between ${chain.lo} and ${chain.hi} and ${counts}
      order by pos ${order} limit ${groupsMax}`.execute(db);
    return rows.map(({ party_id, pos }) => ({ group: party_id, keys: [party_id], pos }));
  }
  const { rows } = await sql<{ at_block: string; keys: string[] }>`
    select at_block, array_agg(at_block || '/' || hash || '/' || block_hash) as keys
    from mirror.checkpoints, generate_series(1, copies)
    where epoch = ${axis.epoch} and at_block between ${chain.lo} and ${chain.hi} and ${counts}
    group by at_block order by at_block ${order} limit ${groupsMax}`.execute(db);
  return rows.map(({ at_block, keys }) => ({ group: at_block, keys, pos: BigInt(at_block) }));
}

/** Where parties stand, proven or not. */
export async function readPlaces(
  db: Db,
  epoch: number,
  ids: readonly string[],
): Promise<ReadonlyMap<string, bigint>> {
  if (ids.length === 0) return new Map();
  const { rows } = await sql<{ party_id: string; pos: bigint }>`
    select party_id, pos from unnest(${ids}::text[]) as asked (id), lateral (${placeOf(epoch)}) as known`.execute(
    db,
  );
  return new Map(rows.map(({ party_id, pos }) => [party_id, pos]));
}

export async function nextPlace(
  db: Db,
  epoch: number,
  pos: bigint,
  direction: Direction,
): Promise<bigint | undefined> {
  const { rows } = await (
    direction === 'up'
      ? sql<{
          pos: bigint;
        }>`select pos from mirror.parties where epoch = ${epoch} and pos > ${pos} order by pos limit 1`
      : sql<{
          pos: bigint;
        }>`select pos from mirror.parties where epoch = ${epoch} and pos < ${pos} order by pos desc limit 1`
  ).execute(db);
  return rows[0]?.pos;
}

/**
 * Makes room beyond a place: the next rows are moved into the farther half of the room that they have
 * together, evenly, and the edges of chains with their rows. The order of rows and chains stays.
 */
export async function spreadPlaces(
  tx: Transaction<MirrorSchema>,
  epoch: number,
  from: { readonly pos: bigint; readonly direction: Direction; readonly rowsMax: number },
): Promise<void> {
  const { pos, direction, rowsMax } = from;
  const sign = direction === 'up' ? 1 : -1;
  // Distances instead of positions, so that both directions read the same.
  const distance = sql`${sign} * (pos - ${pos}::bigint)`;
  await sql`set constraints all deferred`.execute(tx);
  await sql`
    with beyond as (
      select party_id, pos, ${distance} as d from mirror.parties
      where epoch = ${epoch} and ${direction === 'up' ? sql`pos > ${pos}` : sql`pos < ${pos}`}
      order by d limit ${rowsMax}),
    ranked as (
      select party_id, pos, row_number() over (order by d) as n, count(*) over () as total, max(d) over () as far
      from beyond),
    moved as (
      select party_id, pos as old_pos,
        ${pos}::bigint + ${sign} * trunc(far - (far / 2.0) * (total - n) / total)::bigint as new_pos
      from ranked),
    moved_edges as (
      update mirror.chains
      set lo = coalesce((select new_pos from moved where old_pos = lo), lo),
        hi = coalesce((select new_pos from moved where old_pos = hi), hi)
      where epoch = ${epoch} and list = 'parties'
        and exists (select from moved where old_pos in (lo, hi)))
    update mirror.parties party set pos = moved.new_pos
    from moved where party.epoch = ${epoch} and party.party_id = moved.party_id`.execute(tx);
}
