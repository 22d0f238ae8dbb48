/** The export's repository in Postgres: leases, coverage, publications. Leases by the database's clock. */
import { type RawBuilder, sql } from 'kysely';
import { evidenceJson } from '../../json/json-value.ts';
import { FencedError } from '../../errors/errors.ts';
import { type Micros, readInstant } from '../../time/time.ts';
import type { Database } from '../../postgres/database.ts';
import { keepLease, type KeptLease } from '../../concurrency/lease.ts';
import type { ExportScope } from '../ports.ts';
import { type Coverage, readCoverages } from '../../catalog/coverage-rows.ts';
import {
  type ExportLease,
  fenceLeases,
  lockEach,
  releaseLeases,
  renewLeases,
  takeLeases,
} from '../../catalog/leases.ts';
import {
  commitPublication,
  decodePublication,
  finishExports,
  type Publication,
  recordPublication,
  type Success,
} from '../../catalog/publications.ts';
import { quarantineSegment, type Reason } from '../../catalog/segment-rows.ts';
import { decodeProfile, encodeProfile, type SourceProfile } from './source-profile.ts';
import { inTransaction, readRow, readRows } from '../../postgres/transaction.ts';

/** Who waits asks again within two seconds; who does not is gone. */
const TURN_LOST = sql`interval '5 seconds'`;

/** Current segments, added up. */
export interface Published {
  readonly rows: bigint;
  /** Of before the run, in segments that these took the place of. */
  readonly replacedRows: bigint;
  readonly bytes: bigint;
  readonly objectKeys: readonly string[];
}

export class ExportStore {
  protected readonly db: Database;
  readonly #holder: number | undefined;

  /** @param holder by which others see that this process is there; absent: its leases are soon taken over */
  constructor(db: Database, holder?: number) {
    this.db = db;
    this.#holder = holder;
  }

  /** Takes a scope whose lease is free; undefined while another works on it, or on one that overlaps it. */
  acquire(scope: ExportScope): Promise<ExportLease | undefined> {
    const action = `lease the export of party ${scope.partyId}`;
    return inTransaction(this.db, { action }, async (tx) => {
      const [lease] = await takeLeases(tx, [scope.partyId], scope.assetId, this.#holder);
      return lease;
    });
  }

  /** Renews a lease until it is disposed, and then gives it back. @param what for messages */
  keep(lease: ExportLease, what: string): KeptLease {
    return keepLease({
      what,
      takenAtMs: lease.takenAtMs,
      renew: async () => {
        const renewed = await renewLeases(this.db, [lease]);
        if (!renewed.has(lease.exportId)) throw new FencedError(nameOf(lease.scope));
      },
      release: () => this.release(lease),
    });
  }

  release(lease: ExportLease): Promise<void> {
    return releaseLeases(this.db, [lease]);
  }

  /** What is known of the party, in every asset that the scope overlaps, by time. */
  async coverage({ partyId, assetId }: ExportScope): Promise<readonly Coverage[]> {
    return (await readCoverages(this.db, [partyId], assetId)).get(partyId) ?? [];
  }

  /**
   * Current segments of this scope that the run published, whoever worked it.
   * @param adopted keys of objects that another run had intended to publish, and this one did
   */
  published(
    scope: ExportScope,
    runId: string,
    adopted: readonly string[],
  ): Promise<Published> {
    const { partyId, assetId = null } = scope;
    const published = sql<Published>`
      select coalesce(sum(rows), 0)::bigint as rows, coalesce(sum(bytes), 0)::bigint as bytes,
        coalesce(sum((evidence->>'replacedRows')::bigint), 0)::bigint as "replacedRows",
        coalesce(array_agg(object_key order by from_time), '{}') as "objectKeys"
      from mirror.segments
      where party_id = ${partyId} and asset_id is not distinct from ${assetId}::text and status = 'current'
        and (run_id = ${runId}::uuid or object_key = any(${[...adopted]}::text[]))`;
    return readRow(this.db, `read what run ${runId} has published`, published);
  }

  /** Its object does not hold what was published: its range is asked for again. */
  quarantineSegment(objectKey: string, reason: Reason): Promise<void> {
    return quarantineSegment(this.db, sql`object_key = ${objectKey}`, reason);
  }

  /** The next number of this lineage of the warehouse. */
  nextSeq(): Promise<{ readonly warehouseId: string; readonly seq: bigint }> {
    const raise = sql<{ warehouseId: string; seq: bigint }>`
      update mirror.identity set publication_seq = publication_seq + 1
      returning warehouse_id as "warehouseId", publication_seq as seq`;
    return readRow(this.db, 'number a publication', raise);
  }

  /** @throws FencedError */
  intend(lease: ExportLease, publication: Publication): Promise<void> {
    return this.#fenced('intend to publish', lease, async (tx) => {
      const keys = publication.segments.map(({ manifest }) => manifest.objectKey);
      await lockEach(tx, 'object', keys);
      await recordPublication(tx, lease, publication, 'intent');
    });
  }

  /**
   * Intended, neither committed nor dropped: what a dead worker of this export left.
   * @returns by their ids; undefined where this version cannot read what was intended
   */
  async openPublications(
    lease: ExportLease,
  ): Promise<ReadonlyMap<string, Publication | undefined>> {
    const { scope, exportId, hasIntents } = lease;
    if (!hasIntents) return new Map();
    const open = sql<{ publicationId: string; plan: unknown }>`
      select publication_id as "publicationId", plan from mirror.publications
      where export_id = ${exportId} and state = 'intent' order by created_at`;
    const rows = await readRows(
      this.db,
      `read the open publications of ${nameOf(scope)}`,
      open,
    );
    return new Map(
      rows.map(({ publicationId, plan }) => [publicationId, decodePublication(plan)]),
    );
  }

  /**
   * Makes a publication the truth, once: a second call finds it done.
   * @throws FencedError
   * @throws RetryableError `COVERAGE_CHANGED` where the ledger's coverage is no longer what was planned on
   */
  commit(lease: ExportLease, publication: Publication): Promise<void> {
    return this.#fenced('commit the publication of', lease, (tx) =>
      commitPublication(tx, lease, publication),
    );
  }

  /** Gives an intended publication up; its objects stay unreferenced. */
  drop(lease: ExportLease, publicationId: string): Promise<void> {
    return this.#fenced('drop a publication of', lease, async (tx) => {
      await sql`update mirror.publications set state = 'dropped'
        where publication_id = ${publicationId} and state = 'intent'`.execute(tx);
    });
  }

  /** Keeps the plan of windows until the export succeeds. A lease that was taken over keeps nothing. */
  keepPlan(lease: ExportLease, plan: unknown): Promise<void> {
    const kept = sql`window_plan = ${evidenceJson(plan)}::jsonb`;
    return this.#update(`keep the plan of ${nameOf(lease.scope)}`, lease, kept);
  }

  /** Of the source's chain, by the lists; undefined where none is known. */
  async epoch(): Promise<number | undefined> {
    const newest = sql<{
      epoch: number | null;
    }>`select max(epoch) as epoch from mirror.checkpoints`;
    return (
      (await readRow(this.db, "read the epoch of the source's chain", newest)).epoch ??
      undefined
    );
  }

  /**
   * Clears the count of failures, and, where all is done, the plan.
   * @throws FencedError
   * @throws RetryableError `COVERAGE_CHANGED`
   */
  finish(success: Success): Promise<void> {
    return this.#fenced('finish', success.lease, (tx) => finishExports(tx, [success]));
  }

  /**
   * Counts a failure; from `attemptsMax` on the scope is quarantined with the reason.
   * @returns after how many failures in a row it is quarantined; undefined where it is not
   * @throws FencedError
   */
  async fail(
    lease: ExportLease,
    reason: Reason,
    attemptsMax: number,
  ): Promise<number | undefined> {
    const counted = sql<{ attempts: number | null }>`
      update mirror.exports
      set attempts = attempts + 1, last_asked_at = clock_timestamp(),
        quarantined_at = case when attempts + 1 >= ${attemptsMax} then coalesce(quarantined_at, clock_timestamp()) end,
        quarantine_reason = ${evidenceJson(reason)}::jsonb
      where export_id = ${lease.exportId} and lease_token = ${lease.token}
      returning case when quarantined_at is not null then attempts end as attempts`;
    const [failed] = await readRows(
      this.db,
      `record the failure of ${nameOf(lease.scope)}`,
      counted,
    );
    if (failed === undefined) throw new FencedError(nameOf(lease.scope));
    return failed.attempts ?? undefined;
  }

  /**
   * Counts the export among those at the source, over all workers, until it leaves or its lease ends. To be
   * asked again within seconds, or the turn is lost.
   * @returns false while `exportLimit` others are there, or wait longer
   */
  enterSource(lease: ExportLease, exportLimit: number): Promise<boolean> {
    return inTransaction(
      this.db,
      { action: 'count an export towards the export limit' },
      async (tx) => {
        await sql`select pg_advisory_xact_lock(mirror.lock_key('export limit'))`.execute(
          tx,
        );
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
      },
    );
  }

  leaveSource(lease: ExportLease): Promise<void> {
    return this.#update('free the export limit', lease, sql`is_at_source = false`);
  }

  async profile(): Promise<SourceProfile> {
    const stored = sql<{ profile: unknown }>`select profile from mirror.source_state`;
    return decodeProfile(
      (await readRow(this.db, 'read what is known of the source', stored)).profile,
    );
  }

  /** Replaces the profile. */
  async learn(profile: SourceProfile): Promise<void> {
    const replace = sql`update mirror.source_state set profile = ${encodeProfile(profile)}::jsonb`;
    await readRows(this.db, 'record what is known of the source', replace);
  }

  /** The party's first entry among those that are loaded. */
  async firstEntry(partyId: string): Promise<Micros | undefined> {
    const least = sql<{ first: string | null }>`
      select min(vega_time) as first from mirror.ledger_entries where party_id = ${partyId}`;
    const { first } = await readRow(this.db, 'read the first entry of a ledger', least);
    return first === null ? undefined : readInstant(first);
  }

  /** Changes the export's row, where the lease is still held. */
  async #update(
    action: string,
    lease: ExportLease,
    change: RawBuilder<unknown>,
  ): Promise<void> {
    const update = sql`update mirror.exports set ${change}
      where export_id = ${lease.exportId} and lease_token = ${lease.token}`;
    await readRows(this.db, action, update);
  }

  /** In a transaction that another owner, or a lease that has run out, does not let begin. @throws FencedError */
  #fenced(
    action: string,
    lease: ExportLease,
    work: (tx: Database) => Promise<void>,
  ): Promise<void> {
    const name = nameOf(lease.scope);
    return inTransaction(this.db, { action: `${action} ${name}` }, async (tx) => {
      const held = await fenceLeases(tx, [lease]);
      if (!held.has(lease.exportId)) throw new FencedError(name);
      await work(tx);
    });
  }

  /** Assets of all entries known so far: asked for where the source demands an asset and none is configured. */
  async knownAssets(): Promise<readonly string[]> {
    // A loose index scan: one look-up for each asset, however many entries there are.
    const known = sql<{ asset_id: string }>`
      with recursive known(asset_id) as (
        (select asset_id from mirror.ledger_entries order by asset_id limit 1)
        union all
        select (select e.asset_id from mirror.ledger_entries e where e.asset_id > k.asset_id order by e.asset_id limit 1)
        from known k where k.asset_id is not null)
      select asset_id from known where asset_id is not null
      union
      select distinct asset_id from mirror.exports where asset_id is not null
      order by asset_id limit 1000`;
    return (await readRows(this.db, 'read the known assets', known)).map(
      (row) => row.asset_id,
    );
  }
}

function nameOf(scope: ExportScope): string {
  return `party ${scope.partyId}, ${scope.assetId === undefined ? 'all assets' : `asset ${scope.assetId}`}`;
}
