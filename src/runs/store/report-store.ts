/** What the mirror holds, as sums: for the report of a nightly run, and for comparing with one. */
import { sql } from 'kysely';
import { hashText, RowDigest } from '../../ledger/digest.ts';
import { copyLines } from '../../postgres/copy-out.ts';
import type { Warehouse } from '../../postgres/database.ts';
import { readRow, readRows } from '../../postgres/transaction.ts';
import type { Holding, NightlyReport, RowSum } from '../report/report-form.ts';
import { RunStore } from './run-store.ts';

const ACTION = 'sum up what is held';
const HELD_MAX = 1_000;

type Held = Pick<
  NightlyReport,
  'heldAt' | 'warehouseId' | 'lists' | 'ledgers' | 'changed' | 'openDoubts' | 'knownGaps' | 'previous'
> & {
  /** Whatever a transaction had not committed by the reading changes after this instant; RFC 3339. */
  readonly settledAt: string;
};

/** What of a list was there at an instant. Columns that no sync changes. */
const LISTS = {
  parties: 'select party_id from mirror.parties',
  checkpoints: 'select epoch, at_block, hash, block_hash from mirror.checkpoints',
} as const;

export class ReportStore {
  readonly #warehouse: Warehouse;

  constructor(warehouse: Warehouse) {
    this.#warehouse = warehouse;
  }

  async holdings(signal: AbortSignal): Promise<Held> {
    const { since, ...identity } = await readRow(
      this.#warehouse.db,
      ACTION,
      sql<Pick<Held, 'heldAt' | 'settledAt' | 'warehouseId' | 'previous'> & { since: string | null }>`
        select clock_timestamp() as "heldAt", warehouse_id as "warehouseId", r.key as previous, r.since,
            (select least(min(xact_start), clock_timestamp()) from pg_stat_activity
              where datname = current_database() and backend_type = 'client backend') as "settledAt"
          from mirror.identity left join lateral (
            select params->'report'->>'key' as key, params->'report'->>'settledAt' as since from mirror.runs
             where kind = 'nightly' and params ? 'report' order by params->'report'->>'heldAt' desc limit 1) r on true`,
    );
    return {
      ...identity,
      lists: {
        parties: await this.sumList('parties', identity.heldAt, signal),
        checkpoints: await this.sumList('checkpoints', identity.heldAt, signal),
      },
      ledgers: await this.sumLedgers(signal),
      changed: await this.#changedSince(since),
      openDoubts: await this.#openRows('doubts'),
      knownGaps: await this.#openRows('list_gaps'),
    };
  }

  /** The rows of a list that were there at an instant. */
  async sumList(list: keyof typeof LISTS, heldAt: string, signal: AbortSignal): Promise<RowSum> {
    const digest = new RowDigest();
    const at = new Date(heldAt).toISOString();
    // A row of this very microsecond belongs to neither side for certain: instants are cut to milliseconds, rows after count later.
    const statement = `copy (${LISTS[list]} where first_seen_at <= '${at}') to stdout`;
    for await (const line of this.#copiedLines(statement, signal)) digest.add(hashText(line));
    return { rows: String(digest.rows), sum: digest.hex() };
  }

  /** All current segments, open ones too. */
  async sumLedgers(signal: AbortSignal): Promise<NightlyReport['ledgers']> {
    const digest = new RowDigest();
    let [segments, rows] = [0, 0n];
    const statement = `copy (select rows, digest from mirror.segments where status = 'current') to stdout`;
    for await (const line of this.#copiedLines(statement, signal)) {
      const [count = '0', hex = ''] = line.split('\t');
      digest.merge(RowDigest.fromHex(hex, 0));
      segments += 1;
      rows += BigInt(count);
    }
    return { segments: String(segments), rows: rows.toString(), sum: digest.hex() };
  }

  async *#copiedLines(statement: string, signal: AbortSignal): AsyncGenerator<string> {
    for await (const lines of copyLines(this.#warehouse.pool, statement, ACTION, signal)) yield* lines;
  }

  async #changedSince(since: string | null): Promise<Holding[]> {
    const rows = await readRows(
      this.#warehouse.db,
      ACTION,
      sql<Omit<Holding, 'sum'> & { digests: readonly string[] }>`
        with changed as (
          select distinct s.party_id, s.asset_id
            from mirror.segments s left join mirror.coverage c on c.segment_id = s.segment_id
           where ${since}::timestamptz is null or greatest(c.checked_at, s.superseded_at) > ${since}::timestamptz)
        select s.party_id as "partyId", s.asset_id as "assetId", max(s.to_time) as "closedTo", sum(s.rows)::text as rows,
               array_agg(s.digest) as digests
          from mirror.segments s join changed c on c.party_id = s.party_id and c.asset_id is not distinct from s.asset_id
         where s.status = 'current' and not s.open
         group by s.party_id, s.asset_id order by s.party_id, s.asset_id`,
    );
    return rows.map(({ digests, ...holding }) => ({ ...holding, sum: addUp(digests) }));
  }

  /**
   * The same ledger up to the same instant, as it is held now.
   * @returns `sum` of the segments that end by then, and how many rows they hold; `isCut` where one goes on beyond it,
   *   and then the rows of all
   */
  async holdingNow(then: Holding): Promise<{ isCut: boolean; held: bigint; sum: string }> {
    const { partyId, assetId } = then;
    const closedTo = sql`${then.closedTo}::timestamptz`;
    const { digests, ...now } = await readRow(
      this.#warehouse.db,
      ACTION,
      sql<{ isCut: boolean; held: bigint; digests: readonly string[] }>`
        select "isCut", coalesce(case when "isCut" then rows else rows_then end, 0)::bigint as held, digests from (
          select sum(rows) as rows, sum(rows) filter (where to_time <= ${closedTo}) as rows_then,
                 coalesce(bool_or(from_time < ${closedTo} and to_time > ${closedTo}), false) as "isCut",
                 coalesce(array_agg(digest) filter (where to_time <= ${closedTo}), '{}') as digests
            from mirror.segments
           where status = 'current' and party_id = ${partyId}
             and (asset_id is not distinct from ${assetId} or asset_id is null or ${assetId}::text is null)) s`,
    );
    return { ...now, sum: addUp(digests) };
  }

  /** Whether lists were read into this database after the instant: then only their sizes can be compared. */
  async isYoungerThan(heldAt: string): Promise<boolean> {
    const younger = sql`select from mirror.identity where created_at > ${heldAt}::timestamptz`;
    return (await readRows(this.#warehouse.db, ACTION, younger)).length > 0;
  }

  /** @param settledAt changes after it are told by the next report */
  async notePublished(runId: string, key: string, heldAt: string, settledAt: string): Promise<void> {
    await new RunStore(this.#warehouse.db).keep(runId, { report: { key, heldAt, settledAt } });
  }

  /** Brings a run back from its report; one that is known stays as it is. @returns whether it was not known */
  async restore(report: NightlyReport, key: string): Promise<boolean> {
    const params = { report: { key, heldAt: report.heldAt }, restored: true };
    const restored = await readRows(
      this.#warehouse.db,
      'restore a run from its report',
      sql`insert into mirror.runs (run_id, kind, subject, source_url, params, state, verdict, evidence, queued_at, started_at, finished_at)
        values (${report.runId}, 'nightly', ${report.subject}, ${report.sourceUrl}, ${JSON.stringify(params)}::jsonb, 'done', ${report.verdict},
                ${JSON.stringify({ ...report.evidence, report: key })}::jsonb, ${report.startedAt}, ${report.startedAt}, ${report.heldAt})
        on conflict (run_id) do nothing returning run_id`,
    );
    return restored.length === 1;
  }

  /** What speaks against the lists and is not overcome, as JSON. */
  async #openRows(table: 'doubts' | 'list_gaps'): Promise<Record<string, unknown>[]> {
    const rows = await readRows(
      this.#warehouse.db,
      ACTION,
      sql<{ row: Record<string, unknown> }>`
        select to_jsonb(t) as row from ${sql.id('mirror', table)} t where closed_at is null limit ${HELD_MAX}`,
    );
    return rows.map(({ row }) => row);
  }
}

function addUp(digests: readonly string[]): string {
  const total = new RowDigest();
  for (const digest of digests) total.merge(RowDigest.fromHex(digest, 0));
  return total.hex();
}
