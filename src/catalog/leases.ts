/**
 * Leases of exports, by the database's clock: the right to work on one ledger, or on many
 * that are leased in one statement.
 */
import { sql } from 'kysely';
import { LEASE_MS } from '../concurrency/lease.ts';
import type { Database } from '../postgres/database.ts';
import { execute, readRows } from '../postgres/run-statement.ts';
import { statement } from '../postgres/statement.ts';
import type { ExportScope } from '../ledger/export-scope.ts';
import { type Coverage, readCoverages } from './coverage-rows.ts';
import { isUnlisted, listedAs } from './listed-id.ts';

/**
 * The right to work on a scope for as long as the lease is renewed, with the state that
 * earlier owners saved in the export's row.
 */
export interface ExportLease {
  readonly scope: ExportScope;
  readonly exportId: bigint;
  readonly token: string;
  /**
   * When the statement that took or last renewed the lease was sent
   * (`performance.now()`).
   */
  readonly takenAtMs: number;
  /**
   * The party's known ranges when the lease was taken, sorted by time, in every asset
   * that the scope overlaps.
   */
  readonly coverage: readonly Coverage[];
  /**
   * The plan of windows that an unfinished export saved with `savePlan`; null if none
   * was saved.
   */
  readonly plan: unknown;
  /** The number of consecutive runs in which the source contradicted known rows. */
  readonly contradictions: number;
  /** Whether a crashed worker left intended publications unfinished. */
  readonly hasIntents: boolean;
}

type Leases = readonly ExportLease[];

/**
 * Whether any party besides `network` has an id that is not 64 hex digits. The condition
 * and the order must match those of the index `parties_own_ids`. Without the order,
 * Postgres assumes that nearly every party matches, and scans all parties for the first
 * match.
 */
const HAS_OWN_IDS = sql`(select min(party_id) from mirror.parties
  where (length(party_id) <> 64 or party_id ~ '[^0-9a-f]') and party_id <> 'network') is not null`;

/**
 * Leases the exports of these parties in one asset, or in all assets. A party is left out
 * if another worker has leased an overlapping export of it.
 * @param holder id of the lock that shows that this process is alive; without it, other
 *   workers may take over its leases soon after the last renewal
 */
export async function takeLeases(
  tx: Database,
  partyIds: readonly string[],
  assetId: string | undefined,
  holder: number | undefined,
): Promise<readonly ExportLease[]> {
  const takenAtMs = performance.now();
  const ids = [...partyIds];
  const asset = assetId ?? null;
  // Two exports of one party overlap if one of them covers all assets, so a party's
  // exports are leased one at a time.
  await lockEach(tx, 'export', ids);
  const register = statement()`
    insert into mirror.exports (party_id, asset_id)
    select id, ${asset} from unnest(${ids}::text[]) id
    where not exists (
      select from mirror.exports where party_id = id and asset_id is not distinct from ${asset}::text)
    on conflict do nothing`;
  await execute(tx, 'register exports', register);
  const take = statement({
    partyId: 'text',
    exportId: 'bigint',
    token: 'uuid!',
    plan: 'json?',
    contradictions: 'int',
    hasOwnIds: 'boolean',
    listedAs: 'text?',
    isUnlisted: 'boolean',
    hasIntents: 'boolean',
  })`
    update mirror.exports u
    set lease_token = gen_random_uuid(),
      lease_until = clock_timestamp() + ${LEASE_MS} * interval '1 ms',
      lease_holder = ${holder ?? null}, is_at_source = false, last_tried_at = clock_timestamp()
    where u.party_id = any(${ids}::text[]) and u.asset_id is not distinct from ${asset}::text
      and not exists (
        select from mirror.exports o
        where o.party_id = u.party_id and mirror.is_leased(o.lease_until, o.lease_holder)
          and (o.export_id = u.export_id or o.asset_id is null or u.asset_id is null))
    returning party_id as "partyId", export_id as "exportId", lease_token as token,
      window_plan as plan, contradictions, ${HAS_OWN_IDS} as "hasOwnIds",
      ${listedAs(sql`u.party_id`)} as "listedAs",
      ${isUnlisted(sql`u.party_id`)} as "isUnlisted",
      exists (
        select from mirror.publications p where p.export_id = u.export_id and p.state = 'intent')
        as "hasIntents"`;
  const taken = await readRows(tx, 'lease exports', take);
  const leasedIds = taken.map(({ partyId }) => partyId);
  const known = await readCoverages(tx, leasedIds, assetId);
  return taken.map(({ partyId, ...row }) => ({
    exportId: row.exportId,
    token: row.token,
    plan: row.plan,
    contradictions: row.contradictions,
    hasIntents: row.hasIntents,
    coverage: known.get(partyId) ?? [],
    scope: {
      partyId,
      assetId,
      hasOwnIds: row.hasOwnIds || undefined,
      listedAs: row.listedAs ?? undefined,
      isUnlisted: row.isUnlisted || undefined,
    },
    takenAtMs,
  }));
}

/**
 * Locks these exports until the end of the transaction.
 * @returns the ids of the exports whose leases are still ours and have not expired
 */
export async function fenceLeases(
  tx: Database,
  leases: Leases,
): Promise<ReadonlySet<bigint>> {
  const fence = statement({ exportId: 'bigint' })`
    select e.export_id as "exportId" from mirror.exports e
    join ${tokens(leases)} on e.export_id = leased.export_id and e.lease_token = leased.token
    where e.lease_until > clock_timestamp() order by e.export_id for update of e`;
  const fenced = await readRows(tx, 'fence exports', fence);
  return new Set(fenced.map((row) => row.exportId));
}

/**
 * Renews leases.
 * @returns ids of the exports that no other worker has taken over
 */
export async function renewLeases(
  db: Database,
  leases: Leases,
): Promise<ReadonlySet<bigint>> {
  const renew = statement({ exportId: 'bigint' })`
    update mirror.exports e set lease_until = clock_timestamp() + ${LEASE_MS} * interval '1 ms'
    from ${tokens(leases)}
    where e.export_id = leased.export_id and e.lease_token = leased.token
    returning e.export_id as "exportId"`;
  const renewed = await readRows(db, 'renew the leases of exports', renew);
  return new Set(renewed.map((row) => row.exportId));
}

export async function releaseLeases(
  db: Database,
  leases: Leases,
): Promise<void> {
  const release = statement()`
    update mirror.exports e set lease_token = null, lease_until = null, is_at_source = false
    from ${tokens(leases)}
    where e.export_id = leased.export_id and e.lease_token = leased.token`;
  await execute(db, 'release the leases of exports', release);
}

function tokens(leases: Leases) {
  return sql`unnest(${leases.map(({ exportId }) => String(exportId))}::bigint[],
    ${leases.map(({ token }) => token)}::uuid[]) as leased(export_id, token)`;
}

/**
 * Takes a lock on each name until the end of the transaction. The lock `export` is taken
 * to lease exports or rebuild a party; the lock `object`, to reference objects in a
 * publication or to remove an unreferenced object. Names are locked in sorted order, so
 * that transactions that lock several names cannot deadlock.
 */
export async function lockEach(
  tx: Database,
  kind: 'export' | 'object',
  names: readonly string[],
): Promise<void> {
  const lock = statement({ lock: 'void' })`
    select pg_advisory_xact_lock(mirror.lock_key(${kind}::text || ' ' || name)) as lock
    from (select name from unnest(${[...names]}::text[]) name order by name) ordered`;
  await execute(tx, `lock each ${kind}`, lock);
}
