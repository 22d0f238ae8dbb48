/** The export's repository in Postgres: leases, coverage, publications. Leases by the database's clock. */
import { sql } from 'kysely';
import { evidenceJson } from '../../core/json-value.ts';
import { FencedError } from '../../core/errors.ts';
import { type Micros, readInstant } from '../../core/time.ts';
import type { Database } from '../../postgres/database.ts';
import { keepLease, type KeptLease } from '../../core/lease.ts';
import type { ExportScope } from '../ports.ts';
import { recordSuccess } from './batch-statements.ts';
import { type Coverage, readCoverage, REPLACED_ROWS } from './coverage-rows.ts';
import { lockObjects } from './export-locks.ts';
import { type ExportLease, releaseLeases, renewLeases, takeLeases } from './leases.ts';
import { commitPublication, decodePublication, type Publication, publicationRow } from './publications.ts';
import { quarantineSegment } from './quarantine-segment.ts';
import { decodeProfile, encodeProfile, type SourceProfile } from './source-profile.ts';
import { inTransaction, mapDatabaseError } from '../../postgres/transaction.ts';

/** Who waits asks again within two seconds; who does not is gone. */
const TURN_LOST = sql`interval '5 seconds'`;

/** `publication` is missing where this version cannot read what was intended. */
export interface OpenPublication {
  readonly publicationId: string;
  readonly publication: Publication | undefined;
}

export interface PublishedSegment {
  readonly objectKey: string;
  readonly rows: bigint;
  readonly bytes: bigint;
  /** Rows of before the run that went when it came. */
  readonly replaced: bigint;
}

export interface Quarantine {
  readonly attempts: number;
  readonly isQuarantined: boolean;
}

export class ExportStore {
  readonly #db: Database;
  readonly #holder: number | undefined;

  /** @param holder by which others see that this process is there; absent: its leases are soon taken over */
  constructor(db: Database, holder?: number) {
    this.#db = db;
    this.#holder = holder;
  }

  /** Takes a scope whose lease is free; undefined while another works on it, or on one that overlaps it. */
  acquire(scope: ExportScope): Promise<ExportLease | undefined> {
    return inTransaction(this.#db, { action: `lease the export of party ${scope.partyId}` }, async (tx) => {
      const [lease] = await takeLeases(tx, [scope.partyId], scope.assetId, this.#holder);
      return lease;
    });
  }

  /** Renews a lease until it is disposed, and then gives it back. @param what for messages */
  keep(lease: ExportLease, what: string): KeptLease {
    return keepLease({
      what,
      takenAtMs: lease.takenAtMs,
      renew: () => this.renew(lease),
      release: () => this.release(lease),
    });
  }

  /** @throws FencedError where another has taken over */
  renew(lease: ExportLease): Promise<void> {
    return mapDatabaseError(`renew the lease of ${nameOf(lease.scope)}`, async () => {
      const renewed = await renewLeases(this.#db, [lease]);
      if (!renewed.has(lease.exportId)) throw new FencedError(nameOf(lease.scope));
    });
  }

  release(lease: ExportLease): Promise<void> {
    return mapDatabaseError(`release ${nameOf(lease.scope)}`, () => releaseLeases(this.#db, [lease]));
  }

  /** What is known of the party, in every asset that the scope overlaps, by time. */
  coverage(scope: ExportScope): Promise<readonly Coverage[]> {
    return mapDatabaseError(`read the coverage of ${nameOf(scope)}`, () => readCoverage(this.#db, scope));
  }

  /**
   * Current segments of this scope that the run published, whoever worked it.
   * @param adopted keys of objects that another run had intended to publish, and this one did
   */
  published(
    { partyId, assetId }: ExportScope,
    runId: string,
    adopted: readonly string[],
  ): Promise<readonly PublishedSegment[]> {
    return mapDatabaseError(`read what run ${runId} has published`, () =>
      this.#db
        .selectFrom('segments')
        .select(['object_key as objectKey', 'rows', 'bytes', REPLACED_ROWS])
        .where('party_id', '=', partyId)
        .where('asset_id', 'is not distinct from', assetId ?? null)
        .where((eb) =>
          eb.or([eb('run_id', '=', runId), eb('object_key', '=', eb.fn.any(eb.val([...adopted])))]),
        )
        .where('status', '=', 'current')
        .orderBy('from_time')
        .execute(),
    );
  }

  /** Its object does not hold what was published: its range is asked for again. */
  quarantineSegment(
    objectKey: string,
    reason: { readonly code: string; readonly message: string },
  ): Promise<void> {
    return quarantineSegment(this.#db, { object_key: objectKey }, reason);
  }

  /** The next number of this lineage of the warehouse. */
  nextSeq(): Promise<{ readonly warehouseId: string; readonly seq: bigint }> {
    return mapDatabaseError('number a publication', () =>
      this.#db
        .updateTable('identity')
        .set((eb) => ({ publication_seq: eb('publication_seq', '+', 1n) }))
        .returning(['warehouse_id as warehouseId', 'publication_seq as seq'])
        .executeTakeFirstOrThrow(),
    );
  }

  /** @throws FencedError */
  intend(lease: ExportLease, publication: Publication): Promise<void> {
    return inTransaction(this.#db, { action: `intend to publish ${nameOf(lease.scope)}` }, async (tx) => {
      await checkFence(tx, lease);
      await lockObjects(
        tx,
        publication.segments.map(({ manifest }) => manifest.objectKey),
      );
      await tx
        .insertInto('publications')
        .values(publicationRow(lease, publication))
        .onConflict((conflict) => conflict.column('publication_id').doNothing())
        .execute();
    });
  }

  /** Intended, neither committed nor dropped: what a dead worker of this export left. */
  openPublications(lease: ExportLease): Promise<readonly OpenPublication[]> {
    return mapDatabaseError(`read the open publications of ${nameOf(lease.scope)}`, async () => {
      const rows = await this.#db
        .selectFrom('publications')
        .select(['publication_id', 'plan'])
        .where('export_id', '=', lease.exportId)
        .where('state', '=', 'intent')
        .orderBy('created_at')
        .execute();
      return rows.map(({ publication_id: publicationId, plan }) => ({
        publicationId,
        publication: decodePublication(plan),
      }));
    });
  }

  /**
   * Makes a publication the truth, once: a second call finds it done.
   * @throws FencedError
   * @throws RetryableError `COVERAGE_CHANGED` where the ledger's coverage is no longer what was planned on
   */
  commit(lease: ExportLease, publication: Publication): Promise<void> {
    return inTransaction(
      this.#db,
      { action: `commit the publication of ${nameOf(lease.scope)}` },
      async (tx) => {
        await checkFence(tx, lease);
        await commitPublication(tx, lease, publication);
      },
    );
  }

  /** Gives an intended publication up; its objects stay unreferenced. */
  drop(lease: ExportLease, publicationId: string): Promise<void> {
    return inTransaction(this.#db, { action: `drop a publication of ${nameOf(lease.scope)}` }, async (tx) => {
      await checkFence(tx, lease);
      await tx
        .updateTable('publications')
        .set({ state: 'dropped' })
        .where('publication_id', '=', publicationId)
        .where('state', '=', 'intent')
        .execute();
    });
  }

  /** Keeps the plan of windows until the export succeeds. A lease that was taken over keeps nothing. */
  keepPlan(lease: ExportLease, plan: unknown): Promise<void> {
    return mapDatabaseError(`keep the plan of ${nameOf(lease.scope)}`, async () => {
      await this.#db
        .updateTable('exports')
        .set({ window_plan: evidenceJson(plan) })
        .where('export_id', '=', lease.exportId)
        .where('lease_token', '=', lease.token)
        .execute();
    });
  }

  /** Of the source's chain, by the lists; undefined where none is known. */
  epoch(): Promise<number | undefined> {
    return mapDatabaseError("read the epoch of the source's chain", async () => {
      const found = await sql<{
        epoch: number | null;
      }>`select max(epoch) as epoch from mirror.checkpoints`.execute(this.#db);
      return found.rows[0]?.epoch ?? undefined;
    });
  }

  /**
   * Clears the count of failures, and, where all is done, the plan; keeps in how many runs in a row the source
   * contradicted what is known.
   */
  succeed(lease: ExportLease, contradictions: number, isDone: boolean): Promise<void> {
    return mapDatabaseError(`record the success of ${nameOf(lease.scope)}`, () =>
      recordSuccess(this.#db, [{ lease, contradictions, isDone }], { isReleased: false }),
    );
  }

  /**
   * Counts a failure; from `attemptsMax` on the scope is quarantined with the reason.
   * @throws FencedError
   */
  fail(
    lease: ExportLease,
    reason: { readonly code: string; readonly message: string },
    attemptsMax: number,
  ): Promise<Quarantine> {
    return mapDatabaseError(`record the failure of ${nameOf(lease.scope)}`, async () => {
      const failed = await sql<Quarantine>`
        update mirror.exports
        set attempts = attempts + 1, last_asked_at = clock_timestamp(),
          quarantined_at = case when attempts + 1 >= ${attemptsMax} then coalesce(quarantined_at, clock_timestamp()) end,
          quarantine_reason = ${evidenceJson(reason)}::jsonb
        where export_id = ${lease.exportId} and lease_token = ${lease.token}
        returning attempts, quarantined_at is not null as "isQuarantined"`.execute(this.#db);
      const [row] = failed.rows;
      if (row === undefined) throw new FencedError(nameOf(lease.scope));
      return row;
    });
  }

  /**
   * Counts the export among those at the source, over all workers, until it leaves or its lease ends. To be
   * asked again within seconds, or the turn is lost.
   * @returns false while `exportLimit` others are there, or wait longer
   */
  enterSource(lease: ExportLease, exportLimit: number): Promise<boolean> {
    return inTransaction(this.#db, { action: 'count an export towards the export limit' }, async (tx) => {
      await sql`select pg_advisory_xact_lock(mirror.lock_key('export limit'))`.execute(tx);
      const wanted = await sql<{ limit_wanted_at: string }>`
        update mirror.exports
        set limit_polled_at = clock_timestamp(),
          limit_wanted_at = case when limit_polled_at > clock_timestamp() - ${TURN_LOST} then limit_wanted_at
                                 else clock_timestamp() end
        where export_id = ${lease.exportId} returning limit_wanted_at`.execute(tx);
      const entered = await sql`
        update mirror.exports set is_at_source = true, limit_wanted_at = null, limit_polled_at = null
        where export_id = ${lease.exportId} and lease_token = ${lease.token}
          and ${exportLimit} > (
            select count(*) from mirror.exports
            where is_at_source and lease_until > clock_timestamp() and mirror.is_leased(lease_until, lease_holder)
              and export_id <> ${lease.exportId})
          + (select count(*) from mirror.exports
             where limit_wanted_at < ${wanted.rows[0]?.limit_wanted_at ?? null}::timestamptz
               and limit_polled_at > clock_timestamp() - ${TURN_LOST})`.execute(tx);
      return entered.numAffectedRows === 1n;
    });
  }

  leaveSource(lease: ExportLease): Promise<void> {
    return mapDatabaseError('free the export limit', async () => {
      await this.#db
        .updateTable('exports')
        .set({ is_at_source: false })
        .where('export_id', '=', lease.exportId)
        .where('lease_token', '=', lease.token)
        .execute();
    });
  }

  profile(): Promise<SourceProfile> {
    return mapDatabaseError('read what is known of the source', async () => {
      const { profile } = await this.#db
        .selectFrom('source_state')
        .select('profile')
        .executeTakeFirstOrThrow();
      return decodeProfile(profile);
    });
  }

  /** Replaces the profile. */
  learn(profile: SourceProfile): Promise<void> {
    return mapDatabaseError('record what is known of the source', async () => {
      await sql`update mirror.source_state set profile = ${encodeProfile(profile)}::jsonb`.execute(this.#db);
    });
  }

  /** The party's first entry among those that are loaded. */
  firstEntry(partyId: string): Promise<Micros | undefined> {
    return mapDatabaseError('read the first entry of a ledger', async () => {
      const found = await sql<{ first: string | null }>`
        select min(vega_time) as first from mirror.ledger_entries where party_id = ${partyId}`.execute(
        this.#db,
      );
      const first = found.rows[0]?.first ?? undefined;
      return first === undefined ? undefined : readInstant(first);
    });
  }

  /** Assets of all entries known so far: asked for where the source demands an asset and none is configured. */
  knownAssets(): Promise<readonly string[]> {
    return mapDatabaseError('read the known assets', async () => {
      // A loose index scan: one look-up for each asset, however many entries there are.
      const found = await sql<{ asset_id: string }>`
        with recursive known(asset_id) as (
          (select asset_id from mirror.ledger_entries order by asset_id limit 1)
          union all
          select (select e.asset_id from mirror.ledger_entries e where e.asset_id > k.asset_id order by e.asset_id limit 1)
          from known k where k.asset_id is not null)
        select asset_id from known where asset_id is not null
        union
        select distinct asset_id from mirror.exports where asset_id is not null
        order by asset_id limit 1000`.execute(this.#db);
      return found.rows.map((row) => row.asset_id);
    });
  }
}

/** Another owner, or a lease that has run out: what follows must not happen. */
async function checkFence(tx: Database, lease: ExportLease): Promise<void> {
  const held = await sql`
    select from mirror.exports
    where export_id = ${lease.exportId} and lease_token = ${lease.token} and lease_until > clock_timestamp()
    for update`.execute(tx);
  if (held.rows.length !== 1) throw new FencedError(nameOf(lease.scope));
}

function nameOf(scope: ExportScope): string {
  return `party ${scope.partyId}, ${scope.assetId === undefined ? 'all assets' : `asset ${scope.assetId}`}`;
}
