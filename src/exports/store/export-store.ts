/**
 * The export's repository in Postgres: leases, coverage, publications. Leases expire by
 * the database's clock.
 */
import { sql, type UpdateObject } from 'kysely';
import { evidenceJson } from '../../json/json-value.ts';
import { FencedError } from '../../errors/errors.ts';
import { type Micros, readInstant } from '../../time/time.ts';
import type { Database } from '../../postgres/database.ts';
import { keepLease, type KeptLease } from '../../concurrency/lease.ts';
import type { ExportScope } from '../../ledger/export-scope.ts';
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
import { builder } from '../../postgres/builder.ts';
import {
  execute,
  findRow,
  readRow,
  readRows,
} from '../../postgres/run-statement.ts';
import type { Schema } from '../../postgres/schema.generated.ts';
import { statement } from '../../postgres/statement.ts';
import { inTransaction } from '../../postgres/transaction.ts';
import type {
  ExportRepository,
  PublicationNumber,
  Published,
} from './export-repository.ts';
import {
  decodeProfile,
  encodeProfile,
  type SourceProfile,
} from '../planning/profile.ts';

/**
 * How long after its last poll a waiting export is considered gone. A waiting export
 * polls at least every two seconds.
 */
const POLL_LOST = sql`interval '5 seconds'`;
const KNOWN_ASSETS_MAX = 1000;

export class ExportStore implements ExportRepository {
  readonly #db: Database;
  readonly #holder: number | undefined;

  /**
   * @param holder the id of the lock that shows that this process is alive; without it,
   *   other workers may take over its leases soon after the last renewal
   */
  constructor(db: Database, holder?: number) {
    this.#db = db;
    this.#holder = holder;
  }

  acquire(scope: ExportScope): Promise<ExportLease | undefined> {
    const action = `lease the export of party ${scope.partyId}`;
    return inTransaction(this.#db, { action }, async (tx) => {
      const leases = await takeLeases(
        tx,
        [scope.partyId],
        scope.assetId,
        this.#holder,
      );
      return leases[0];
    });
  }

  /**
   * Renews a lease until the result is disposed of, which releases it.
   * @param release how the lease is released, if not by this store's `release`
   */
  holdLease(
    lease: ExportLease,
    what: string,
    release = (): Promise<void> => this.release(lease),
  ): KeptLease {
    return keepLease({
      what,
      takenAtMs: lease.takenAtMs,
      renew: async () => {
        const renewed = await renewLeases(this.#db, [lease]);
        if (!renewed.has(lease.exportId))
          throw new FencedError(nameOf(lease.scope));
      },
      release,
    });
  }

  release(lease: ExportLease): Promise<void> {
    return releaseLeases(this.#db, [lease]);
  }

  async coverage({
    partyId,
    assetId,
  }: ExportScope): Promise<readonly Coverage[]> {
    const byParty = await readCoverages(this.#db, [partyId], assetId);
    return byParty.get(partyId) ?? [];
  }

  published(
    scope: ExportScope,
    runId: string,
    adopted: readonly string[],
  ): Promise<Published> {
    const { partyId, assetId = null } = scope;
    const published = statement({
      rows: 'bigint',
      bytes: 'bigint',
      replacedRows: 'bigint',
      objectKeys: 'text[]',
    })`
      select coalesce(sum(rows), 0)::bigint as rows,
        coalesce(sum(bytes), 0)::bigint as bytes,
        coalesce(sum((evidence->>'replacedRows')::bigint), 0)::bigint as "replacedRows",
        coalesce(array_agg(object_key order by from_time), '{}') as "objectKeys"
      from mirror.segments
      where party_id = ${partyId} and asset_id is not distinct from ${assetId}::text
        and status = 'current'
        and (run_id = ${runId}::uuid or object_key = any(${[...adopted]}::text[]))`;
    return readRow(this.#db, `read what run ${runId} has published`, published);
  }

  quarantineSegment(objectKey: string, reason: Reason): Promise<void> {
    return quarantineSegment(this.#db, sql`object_key = ${objectKey}`, reason);
  }

  nextSeq(): Promise<PublicationNumber> {
    const raise = statement({ warehouseId: 'uuid', seq: 'bigint' })`
      update mirror.identity set publication_seq = publication_seq + 1
      returning warehouse_id as "warehouseId", publication_seq as seq`;
    return readRow(this.#db, 'number a publication', raise);
  }

  intend(lease: ExportLease, publication: Publication): Promise<void> {
    return this.#fenced('intend to publish', lease, async (tx) => {
      const keys = publication.segments.map(
        ({ manifest }) => manifest.objectKey,
      );
      // Garbage collection holds these locks while it deletes, so either it sees the
      // intent or it has already finished.
      await lockEach(tx, 'object', keys);
      await recordPublication(tx, lease, publication, 'intent');
    });
  }

  async openPublications(
    lease: ExportLease,
  ): Promise<ReadonlyMap<string, Publication | undefined>> {
    const { scope, exportId, hasIntents } = lease;
    if (!hasIntents) return new Map();
    const open = builder
      .selectFrom('mirror.publications')
      .select(['publication_id as publicationId', 'plan'])
      .where('export_id', '=', exportId)
      .where('state', '=', 'intent')
      .orderBy('created_at');
    const action = `read the open publications of ${nameOf(scope)}`;
    const rows = await readRows(this.#db, action, open);
    return new Map(
      rows.map(({ publicationId, plan }) => [
        publicationId,
        decodePublication(plan),
      ]),
    );
  }

  commit(lease: ExportLease, publication: Publication): Promise<void> {
    return this.#fenced('commit the publication of', lease, (tx) =>
      commitPublication(tx, lease, publication),
    );
  }

  drop(lease: ExportLease, publicationId: string): Promise<void> {
    return this.#fenced('drop a publication of', lease, async (tx) => {
      const drop = builder
        .updateTable('mirror.publications')
        .set({ state: 'dropped' })
        .where('publication_id', '=', publicationId)
        .where('state', '=', 'intent');
      await execute(tx, 'drop a publication', drop);
    });
  }

  savePlan(lease: ExportLease, plan: unknown): Promise<void> {
    const action = `save the plan of ${nameOf(lease.scope)}`;
    return this.#update(action, lease, { window_plan: evidenceJson(plan) });
  }

  async epoch(): Promise<number | undefined> {
    const newest = statement({ epoch: 'int?' })`
      select max(epoch) as epoch from mirror.checkpoints`;
    const { epoch } = await readRow(
      this.#db,
      "read the epoch of the source's chain",
      newest,
    );
    return epoch ?? undefined;
  }

  finish(success: Success): Promise<void> {
    return this.#fenced('finish', success.lease, (tx) =>
      finishExports(tx, [success]),
    );
  }

  async fail(
    lease: ExportLease,
    reason: Reason,
    attemptsMax: number,
  ): Promise<number | undefined> {
    const counted = statement({ attempts: 'int?' })`
      update mirror.exports
      set attempts = attempts + 1, last_asked_at = clock_timestamp(),
        quarantined_at = case when attempts + 1 >= ${attemptsMax}
          then coalesce(quarantined_at, clock_timestamp()) end,
        quarantine_reason = ${evidenceJson(reason)}::jsonb
      where export_id = ${lease.exportId} and lease_token = ${lease.token}
      returning case when quarantined_at is not null then attempts end as attempts`;
    const action = `record the failure of ${nameOf(lease.scope)}`;
    const failed = await findRow(this.#db, action, counted);
    if (failed === undefined) throw new FencedError(nameOf(lease.scope));
    return failed.attempts ?? undefined;
  }

  enterSource(lease: ExportLease, exportLimit: number): Promise<boolean> {
    const action = 'count an export towards the export limit';
    return inTransaction(this.#db, { action }, async (tx) => {
      const lock = statement({ lock: 'void' })`
        select pg_advisory_xact_lock(mirror.lock_key('export limit')) as lock`;
      await execute(tx, action, lock);
      const wait = statement({ wantedAt: 'instant?' })`
        update mirror.exports
        set limit_polled_at = clock_timestamp(),
          limit_wanted_at = case when limit_polled_at > clock_timestamp() - ${POLL_LOST}
            then limit_wanted_at else clock_timestamp() end
        where export_id = ${lease.exportId}
        returning limit_wanted_at as "wantedAt"`;
      const waiting = await findRow(tx, action, wait);
      const wantedAt = waiting?.wantedAt ?? null;
      const enter = statement()`
        update mirror.exports
        set is_at_source = true, limit_wanted_at = null, limit_polled_at = null
        where export_id = ${lease.exportId} and lease_token = ${lease.token}
          and ${exportLimit} > (
            select count(*) from mirror.exports
            where is_at_source and lease_until > clock_timestamp()
              and mirror.is_leased(lease_until, lease_holder)
              and export_id <> ${lease.exportId})
          + (select count(*) from mirror.exports
             where limit_wanted_at < ${wantedAt}::timestamptz
               and limit_polled_at > clock_timestamp() - ${POLL_LOST})`;
      return (await execute(tx, action, enter)) === 1n;
    });
  }

  leaveSource(lease: ExportLease): Promise<void> {
    return this.#update('free the export limit', lease, {
      is_at_source: false,
    });
  }

  async profile(): Promise<SourceProfile> {
    const stored = builder.selectFrom('mirror.source_state').select('profile');
    const { profile } = await readRow(
      this.#db,
      'read the profile of the source',
      stored,
    );
    return decodeProfile(profile);
  }

  async learn(profile: SourceProfile): Promise<void> {
    const replace = builder
      .updateTable('mirror.source_state')
      .set({ profile: encodeProfile(profile) });
    await execute(this.#db, 'record the profile of the source', replace);
  }

  async firstEntry(partyId: string): Promise<Micros | undefined> {
    const least = statement({ first: 'instant?' })`
      select min(vega_time) as first from mirror.ledger_entries where party_id = ${partyId}`;
    const { first } = await readRow(
      this.#db,
      'read the first entry of a ledger',
      least,
    );
    return first === null ? undefined : readInstant(first);
  }

  async knownAssets(): Promise<readonly string[]> {
    // A loose index scan: one look-up for each asset, however many entries there are.
    const known = statement({ assetId: 'text!' })`
      with recursive known(asset_id) as (
        (select asset_id from mirror.ledger_entries order by asset_id limit 1)
        union all
        select (
          select e.asset_id from mirror.ledger_entries e
          where e.asset_id > k.asset_id order by e.asset_id limit 1)
        from known k where k.asset_id is not null)
      select asset_id as "assetId" from known where asset_id is not null
      union
      select distinct asset_id from mirror.exports where asset_id is not null
      order by "assetId" limit ${KNOWN_ASSETS_MAX}`;
    const rows = await readRows(this.#db, 'read the known assets', known);
    return rows.map(({ assetId }) => assetId);
  }

  /** Changes the export's row. Does nothing if the lease is lost. */
  async #update(
    action: string,
    lease: ExportLease,
    change: UpdateObject<Schema, 'mirror.exports'>,
  ): Promise<void> {
    const update = builder
      .updateTable('mirror.exports')
      .set(change)
      .where('export_id', '=', lease.exportId)
      .where('lease_token', '=', lease.token);
    await execute(this.#db, action, update);
  }

  /**
   * Runs `work` in a transaction that begins only while the lease is valid, and locks
   * the export's row.
   * @throws FencedError if another worker owns the lease or it has expired
   */
  #fenced(
    action: string,
    lease: ExportLease,
    work: (tx: Database) => Promise<void>,
  ): Promise<void> {
    const name = nameOf(lease.scope);
    return inTransaction(
      this.#db,
      { action: `${action} ${name}` },
      async (tx) => {
        const valid = await fenceLeases(tx, [lease]);
        if (!valid.has(lease.exportId)) throw new FencedError(name);
        await work(tx);
      },
    );
  }
}

function nameOf({ partyId, assetId }: ExportScope): string {
  const asset = assetId === undefined ? 'all assets' : `asset ${assetId}`;
  return `party ${partyId}, ${asset}`;
}
