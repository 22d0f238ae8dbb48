/** The export's books in Postgres: claims, coverage, publications, slots. Leases by the database's clock. */
import { sql } from 'kysely';
import { FencedError } from '../../core/errors.ts';
import type {
  Coverage,
  ExportBooks,
  ExportUnit,
  Publication,
  SetAside,
  SlotLease,
  SourceProfile,
  UnitClaim,
} from '../ports.ts';
import type { Database } from '../../postgres/database.ts';
import {
  commitPublication,
  decodePublication,
  publicationRow,
  readCoverage,
  readIdentity,
} from './publications.ts';
import { lockObjects, lockParty } from './export-locks.ts';
import { decodeProfile, encodeProfile } from './source-profile.ts';
import { guarded, inTransaction } from '../../postgres/transaction.ts';

/** Who waits asks again within two seconds; who does not is gone. */
const TURN_LOST = sql`interval '5 seconds'`;

export class ExportStore implements ExportBooks {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  identity(): Promise<{ warehouseId: string; publicationSeq: bigint }> {
    return guarded('read the identity of the warehouse', () => readIdentity(this.#db));
  }

  claim(unit: ExportUnit, leaseMs: number): Promise<UnitClaim | undefined> {
    const assetId = unit.assetId ?? null;
    return inTransaction(this.#db, { action: `claim the export of party ${unit.partyId}` }, async (tx) => {
      // Units of one party overlap where one is "all assets": their claims are taken one after another.
      await lockParty(tx, unit.partyId);
      await tx
        .insertInto('export_units')
        .values({ party_id: unit.partyId, asset_id: assetId })
        .onConflict((conflict) => conflict.columns(['party_id', 'asset_id']).doNothing())
        .execute();
      const claimed = await sql<{ unit_id: bigint; lease_token: string }>`
        update mirror.export_units u
        set lease_token = gen_random_uuid(), lease_until = clock_timestamp() + ${leaseMs} * interval '1 ms'
        where u.party_id = ${unit.partyId} and u.asset_id is not distinct from ${assetId}
          and not exists (
            select from mirror.export_units o
            where o.party_id = u.party_id and o.lease_until > clock_timestamp()
              and (o.unit_id = u.unit_id or o.asset_id is null or u.asset_id is null))
        returning unit_id, lease_token`.execute(tx);
      const row = claimed.rows[0];
      return row === undefined ? undefined : { unit, unitId: row.unit_id, token: row.lease_token };
    });
  }

  renew(claim: UnitClaim, leaseMs: number): Promise<void> {
    return guarded(`renew the lease of ${nameOf(claim.unit)}`, async () => {
      const renewed = await sql`
        update mirror.export_units set lease_until = clock_timestamp() + ${leaseMs} * interval '1 ms'
        where unit_id = ${claim.unitId} and lease_token = ${claim.token}`.execute(this.#db);
      if (renewed.numAffectedRows !== 1n) throw new FencedError(nameOf(claim.unit));
    });
  }

  release(claim: UnitClaim): Promise<void> {
    return guarded(`release ${nameOf(claim.unit)}`, async () => {
      await this.#db
        .updateTable('export_units')
        .set({ lease_token: null, lease_until: null })
        .where('unit_id', '=', claim.unitId)
        .where('lease_token', '=', claim.token)
        .execute();
    });
  }

  coverage(unit: ExportUnit): Promise<readonly Coverage[]> {
    return guarded(`read the coverage of ${nameOf(unit)}`, () => readCoverage(this.#db, unit));
  }

  nextSeq(): Promise<bigint> {
    return guarded('number a publication', async () => {
      const row = await this.#db
        .updateTable('identity')
        .set((eb) => ({ publication_seq: eb('publication_seq', '+', 1n) }))
        .returning('publication_seq')
        .executeTakeFirstOrThrow();
      return row.publication_seq;
    });
  }

  intend(claim: UnitClaim, publication: Publication): Promise<void> {
    return inTransaction(this.#db, { action: `intend to publish ${nameOf(claim.unit)}` }, async (tx) => {
      await checkFence(tx, claim);
      await lockObjects(
        tx,
        publication.segments.map(({ manifest }) => manifest.objectKey),
      );
      await tx
        .insertInto('publications')
        .values(publicationRow(claim, publication))
        .onConflict((conflict) => conflict.column('publication_id').doNothing())
        .execute();
    });
  }

  openPublications(claim: UnitClaim): Promise<readonly Publication[]> {
    return guarded(`read the open publications of ${nameOf(claim.unit)}`, async () => {
      const rows = await this.#db
        .selectFrom('publications')
        .select('plan')
        .where('unit_id', '=', claim.unitId)
        .where('state', '=', 'intent')
        .orderBy('created_at')
        .execute();
      return rows.map((row) => decodePublication(row.plan));
    });
  }

  commit(claim: UnitClaim, publication: Publication): Promise<void> {
    return inTransaction(
      this.#db,
      { action: `commit the publication of ${nameOf(claim.unit)}` },
      async (tx) => {
        await checkFence(tx, claim);
        await commitPublication(tx, claim, publication);
      },
    );
  }

  drop(claim: UnitClaim, publicationId: string): Promise<void> {
    return inTransaction(this.#db, { action: `drop a publication of ${nameOf(claim.unit)}` }, async (tx) => {
      await checkFence(tx, claim);
      await tx
        .updateTable('publications')
        .set({ state: 'dropped' })
        .where('publication_id', '=', publicationId)
        .where('state', '=', 'intent')
        .execute();
    });
  }

  plan(claim: UnitClaim): Promise<unknown> {
    return guarded(`read the plan of ${nameOf(claim.unit)}`, async () => {
      const row = await this.#db
        .selectFrom('export_units')
        .select('piece_plan')
        .where('unit_id', '=', claim.unitId)
        .executeTakeFirst();
      return row?.piece_plan ?? undefined;
    });
  }

  keepPlan(claim: UnitClaim, plan: unknown): Promise<void> {
    return guarded(`keep the plan of ${nameOf(claim.unit)}`, async () => {
      await this.#db
        .updateTable('export_units')
        .set({ piece_plan: JSON.stringify(plan) })
        .where('unit_id', '=', claim.unitId)
        .where('lease_token', '=', claim.token)
        .execute();
    });
  }

  succeed(claim: UnitClaim): Promise<void> {
    return guarded(`record the success of ${nameOf(claim.unit)}`, async () => {
      await this.#db
        .updateTable('export_units')
        .set({
          attempts: 0,
          set_aside_at: null,
          set_aside_reason: null,
          piece_plan: null,
          last_asked_at: sql`clock_timestamp()`,
        })
        .where('unit_id', '=', claim.unitId)
        .execute();
    });
  }

  fail(
    claim: UnitClaim,
    reason: { readonly code: string; readonly message: string },
    attemptsMax: number,
  ): Promise<SetAside> {
    return guarded(`record the failure of ${nameOf(claim.unit)}`, async () => {
      const failed = await sql<{ attempts: number; is_set_aside: boolean }>`
        update mirror.export_units
        set attempts = attempts + 1, last_asked_at = clock_timestamp(),
          set_aside_at = case when attempts + 1 >= ${attemptsMax} then coalesce(set_aside_at, clock_timestamp()) end,
          set_aside_reason = ${JSON.stringify(reason)}::jsonb
        where unit_id = ${claim.unitId} and lease_token = ${claim.token}
        returning attempts, set_aside_at is not null as is_set_aside`.execute(this.#db);
      const [row] = failed.rows;
      if (row === undefined) throw new FencedError(nameOf(claim.unit));
      return { attempts: row.attempts, isSetAside: row.is_set_aside };
    });
  }

  takeSlot(claim: UnitClaim, slotsMax: number, leaseMs: number): Promise<SlotLease | undefined> {
    return inTransaction(this.#db, { action: 'take a place among the exports at once' }, async (tx) => {
      await sql`insert into mirror.export_slots (slot) select generate_series(1, ${slotsMax}::int)
        on conflict do nothing`.execute(tx);
      const wanted = await sql<{ slot_wanted_at: string }>`
        update mirror.export_units
        set slot_polled_at = clock_timestamp(),
          slot_wanted_at = case when slot_polled_at > clock_timestamp() - ${TURN_LOST} then slot_wanted_at
                                else clock_timestamp() end
        where unit_id = ${claim.unitId} returning slot_wanted_at`.execute(tx);
      const taken = await sql<{ slot: number; lease_token: string }>`
        with free as (
          select slot from mirror.export_slots
          where slot <= ${slotsMax} and (lease_until is null or lease_until < clock_timestamp())),
        earlier as (
          select from mirror.export_units
          where slot_wanted_at < ${wanted.rows[0]?.slot_wanted_at ?? null}::timestamptz
            and slot_polled_at > clock_timestamp() - ${TURN_LOST})
        update mirror.export_slots
        set lease_token = gen_random_uuid(), lease_until = clock_timestamp() + ${leaseMs} * interval '1 ms'
        where slot = (
          select slot from mirror.export_slots
          where slot <= ${slotsMax} and (lease_until is null or lease_until < clock_timestamp())
          order by slot limit 1 for update skip locked)
          and (select count(*) from earlier) < (select count(*) from free)
        returning slot, lease_token`.execute(tx);
      const row = taken.rows[0];
      if (row !== undefined) {
        await sql`update mirror.export_units set slot_wanted_at = null, slot_polled_at = null
          where unit_id = ${claim.unitId}`.execute(tx);
      }
      return row === undefined ? undefined : { slot: row.slot, token: row.lease_token };
    });
  }

  renewSlot(lease: SlotLease, leaseMs: number): Promise<void> {
    return guarded('renew a place among the exports at once', async () => {
      const renewed = await sql`
        update mirror.export_slots set lease_until = clock_timestamp() + ${leaseMs} * interval '1 ms'
        where slot = ${lease.slot} and lease_token = ${lease.token}`.execute(this.#db);
      if (renewed.numAffectedRows !== 1n) throw new FencedError(`export slot ${lease.slot}`);
    });
  }

  freeSlot(lease: SlotLease): Promise<void> {
    return guarded('free a place among the exports at once', async () => {
      await this.#db
        .updateTable('export_slots')
        .set({ lease_token: null, lease_until: null })
        .where('slot', '=', lease.slot)
        .where('lease_token', '=', lease.token)
        .execute();
    });
  }

  profile(): Promise<SourceProfile> {
    return guarded('read what is known of the source', async () => {
      const { profile } = await this.#db
        .selectFrom('source_state')
        .select('profile')
        .executeTakeFirstOrThrow();
      return decodeProfile(profile);
    });
  }

  learn(profile: SourceProfile): Promise<void> {
    return guarded('record what is known of the source', async () => {
      await sql`update mirror.source_state set profile = ${encodeProfile(profile)}::jsonb`.execute(this.#db);
    });
  }

  knownAssets(): Promise<readonly string[]> {
    return guarded('read the known assets', async () => {
      // A loose index scan: one look-up for each asset, however many entries there are.
      const found = await sql<{ asset_id: string }>`
        with recursive known(asset_id) as (
          (select asset_id from mirror.ledger_entries order by asset_id limit 1)
          union all
          select (select e.asset_id from mirror.ledger_entries e where e.asset_id > k.asset_id order by e.asset_id limit 1)
          from known k where k.asset_id is not null)
        select asset_id from known where asset_id is not null
        union
        select distinct asset_id from mirror.export_units where asset_id is not null
        order by asset_id limit 1000`.execute(this.#db);
      return found.rows.map((row) => row.asset_id);
    });
  }
}

/** Another owner, or a lease that has run out: what follows must not happen. */
async function checkFence(tx: Database, claim: UnitClaim): Promise<void> {
  const held = await sql`
    select from mirror.export_units
    where unit_id = ${claim.unitId} and lease_token = ${claim.token} and lease_until > clock_timestamp()
    for update`.execute(tx);
  if (held.rows.length !== 1) throw new FencedError(nameOf(claim.unit));
}

function nameOf(unit: ExportUnit): string {
  return `party ${unit.partyId}, ${unit.assetId === undefined ? 'all assets' : `asset ${unit.assetId}`}`;
}
