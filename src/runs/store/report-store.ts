/** What the mirror holds, as sums: for the report of a nightly run, and for comparing with one. */
import { sql } from 'kysely';
import type { Verdict } from '../../core/verdict.ts';
import { hashText, RowDigest } from '../../ledger/digest.ts';
import { copyOut } from '../../postgres/copy-out.ts';
import type { Warehouse } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';
import type { Holding, NightlyReport, RowSum } from '../report/report-form.ts';

const ACTION = 'sum up what is held';
const HELD_MAX = 1_000;

type Held = Pick<
  NightlyReport,
  'heldAt' | 'warehouseId' | 'lists' | 'ledgers' | 'changed' | 'openDoubts' | 'knownGaps' | 'previous'
>;

/** What of a list was there at an instant. Columns that no sync changes. */
const LISTS = {
  parties: 'select party_id from mirror.parties',
  checkpoints: 'select epoch, at_block, hash, block_hash from mirror.checkpoints',
} as const;

interface SegmentSum {
  readonly party_id: string;
  readonly asset_id: string | null;
  readonly closed_to: string;
  readonly rows: bigint;
  readonly digests: readonly string[];
}

export class ReportStore {
  readonly #warehouse: Warehouse;

  constructor(warehouse: Warehouse) {
    this.#warehouse = warehouse;
  }

  /** @param followed what the key of the report before must begin with */
  async holdings(followed: string, signal: AbortSignal): Promise<Held> {
    const { db } = this.#warehouse;
    const [head] = (
      await mapDatabaseError(ACTION, () =>
        sql<{ now: string; warehouse_id: string; key: string | null; since: string | null }>`
          select clock_timestamp() as now, warehouse_id, r.key, r.since
            from mirror.identity left join lateral (
              select params->'report'->>'key' as key, params->'report'->>'heldAt' as since from mirror.runs
               where kind = 'nightly' and starts_with(params->'report'->>'key', ${followed}) order by params->'report'->>'heldAt' desc limit 1) r on true`.execute(
          db,
        ),
      )
    ).rows;
    if (head === undefined) throw new TypeError('the warehouse has no identity');
    return {
      heldAt: head.now,
      warehouseId: head.warehouse_id,
      lists: {
        parties: await this.sumList('parties', head.now, signal),
        checkpoints: await this.sumList('checkpoints', head.now, signal),
      },
      ledgers: await this.sumLedgers(signal),
      changed: await this.#changedSince(head.since),
      openDoubts: await this.#rows('doubts', 'closed_at is null'),
      knownGaps: [...(await this.#rows('list_gaps', 'closed_at is null'))],
      previous: head.key,
    };
  }

  /** The rows of a list that were there at an instant. */
  async sumList(list: keyof typeof LISTS, heldAt: string, signal: AbortSignal): Promise<RowSum> {
    const digest = new RowDigest();
    const decoder = new TextDecoder();
    let partial = '';
    const at = new Date(heldAt).toISOString();
    // A row of this very microsecond belongs to neither side for certain: instants are cut to milliseconds, rows after count later.
    const statement = `copy (${LISTS[list]} where first_seen_at <= '${at}') to stdout`;
    for await (const chunk of copyOut(this.#warehouse.pool, statement, ACTION, signal)) {
      const lines = (partial + decoder.decode(chunk, { stream: true })).split('\n');
      partial = lines.pop() ?? '';
      for (const line of lines) digest.add(hashText(line));
    }
    return { rows: String(digest.rows), sum: digest.hex() };
  }

  /** All current segments, open ones too. */
  async sumLedgers(signal: AbortSignal): Promise<NightlyReport['ledgers']> {
    const digest = new RowDigest();
    const decoder = new TextDecoder();
    let [partial, segments, rows] = ['', 0, 0n];
    const statement = `copy (select rows, digest from mirror.segments where status = 'current') to stdout`;
    for await (const chunk of copyOut(this.#warehouse.pool, statement, ACTION, signal)) {
      const lines = (partial + decoder.decode(chunk, { stream: true })).split('\n');
      partial = lines.pop() ?? '';
      for (const line of lines) {
        const [count = '0', hex = ''] = line.split('\t');
        digest.merge(RowDigest.fromHex(hex, 0));
        segments += 1;
        rows += BigInt(count);
      }
    }
    return { segments: String(segments), rows: rows.toString(), sum: digest.hex() };
  }

  async #changedSince(since: string | null): Promise<Holding[]> {
    const { rows } = await mapDatabaseError(ACTION, () =>
      sql<SegmentSum>`
        with changed as (
          select distinct party_id, asset_id from mirror.segments
           where ${since}::timestamptz is null or greatest(published_at, superseded_at) > ${since}::timestamptz)
        select s.party_id, s.asset_id, max(s.to_time) as closed_to, sum(s.rows)::bigint as rows,
               array_agg(s.digest) as digests
          from mirror.segments s join changed c on c.party_id = s.party_id and c.asset_id is not distinct from s.asset_id
         where s.status = 'current' and not s.open
         group by s.party_id, s.asset_id order by s.party_id, s.asset_id`.execute(this.#warehouse.db),
    );
    return rows.map((row) => ({
      partyId: row.party_id,
      assetId: row.asset_id,
      closedTo: row.closed_to,
      rows: row.rows.toString(),
      sum: addUp(row.digests),
    }));
  }

  /**
   * The same ledger up to the same instant, as it is held now.
   * @returns `rows` and `sum` of the segments that end by then; `isCut` where one goes on beyond it
   */
  async holdingNow({
    partyId,
    assetId,
    closedTo,
  }: Holding): Promise<RowSum & { isCut: boolean; rowsNow: bigint }> {
    const { rows } = await mapDatabaseError(ACTION, () =>
      sql<{ within: bigint; total: bigint; is_cut: boolean; digests: readonly string[] | null }>`
        select coalesce(sum(rows) filter (where to_time <= ${closedTo}::timestamptz), 0)::bigint as within,
               coalesce(sum(rows), 0)::bigint as total,
               coalesce(bool_or(from_time < ${closedTo}::timestamptz and to_time > ${closedTo}::timestamptz), false) as is_cut,
               array_agg(digest) filter (where to_time <= ${closedTo}::timestamptz) as digests
          from mirror.segments
         where status = 'current' and party_id = ${partyId}
           and (asset_id is not distinct from ${assetId} or asset_id is null or ${assetId}::text is null)`.execute(
        this.#warehouse.db,
      ),
    );
    const [row] = rows;
    return {
      rows: (row?.within ?? 0n).toString(),
      sum: addUp(row?.digests ?? []),
      isCut: row?.is_cut ?? false,
      rowsNow: row?.total ?? 0n,
    };
  }

  /** Whether lists were read into this database after the instant: then only their sizes can be compared. */
  async isYoungerThan(heldAt: string): Promise<boolean> {
    const { rows } = await mapDatabaseError(ACTION, () =>
      sql<{
        younger: boolean;
      }>`select created_at > ${heldAt}::timestamptz as younger from mirror.identity`.execute(
        this.#warehouse.db,
      ),
    );
    return rows[0]?.younger === true;
  }

  async notePublished(runId: string, key: string, heldAt: string): Promise<void> {
    await mapDatabaseError('note the report of a run', () =>
      sql`update mirror.runs set params = params || ${JSON.stringify({ report: { key, heldAt } })}::jsonb
        where run_id = ${runId}`.execute(this.#warehouse.db),
    );
  }

  /** Brings a run back from its report; one that is known stays as it is. @returns whether it was not known */
  async restore(report: NightlyReport, key: string): Promise<boolean> {
    const params = { report: { key, heldAt: report.heldAt }, restored: true };
    const verdict: Verdict = report.verdict;
    const result = await mapDatabaseError('restore a run from its report', () =>
      sql`insert into mirror.runs (run_id, kind, subject, source_url, params, state, verdict, evidence, queued_at, started_at, finished_at)
        values (${report.runId}, 'nightly', ${report.subject}, ${report.sourceUrl}, ${JSON.stringify(params)}::jsonb, 'done', ${verdict},
                ${JSON.stringify({ ...report.evidence, report: key })}::jsonb, ${report.startedAt}, ${report.startedAt}, ${report.heldAt})
        on conflict (run_id) do nothing`.execute(this.#warehouse.db),
    );
    return result.numAffectedRows === 1n;
  }

  /** Rows of a table as JSON. */
  async #rows(table: string, condition: string): Promise<Record<string, unknown>[]> {
    return mapDatabaseError(ACTION, async () => {
      const { rows } = await sql<{ row: Record<string, unknown> }>`
        select to_jsonb(t) as row from ${sql.id('mirror', table)} t where ${sql.raw(condition)} limit ${HELD_MAX}`.execute(
        this.#warehouse.db,
      );
      return rows.map(({ row }) => row);
    });
  }
}

function addUp(digests: readonly string[]): string {
  const total = new RowDigest();
  for (const digest of digests) total.merge(RowDigest.fromHex(digest, 0));
  return total.hex();
}
