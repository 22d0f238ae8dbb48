/** Reads and writes the known ranges of ledgers (the rows of `mirror.coverage`). */
import { z } from 'zod';
import { errorCode, RetryableError } from '../errors/errors.ts';
import { type Micros, readInstant } from '../time/time.ts';
import { id, instant } from '../ledger/json-fields.ts';
import { type TailSum, tailSum } from '../ledger/tail-sum.ts';
import type { Database } from '../postgres/database.ts';
import { execute, readRow, readRows } from '../postgres/run-statement.ts';
import { type RowOf, statement, typed } from '../postgres/statement.ts';

/** A known range of a ledger: either a current segment or an empty range. */
export interface Coverage {
  readonly coverageId: bigint;
  /** The asset of the range; undefined stands for every asset. */
  readonly assetId: string | undefined;
  readonly from: Micros;
  /** The end of the range, exclusive. */
  readonly to: Micros;
  /**
   * Whether the range reached the present when it was exported, so that it may still
   * grow.
   */
  readonly open: boolean;
  /** Which sides of a movement the range's rows include. */
  readonly sides: NewCoverage['sides'];
  /** The key of the object that holds the range's rows; undefined if it has no rows. */
  readonly objectKey: string | undefined;
  readonly rows: bigint;
  /**
   * The sum of the range's last rows; undefined if the range is open or nothing was
   * summed.
   */
  readonly tail: TailSum | undefined;
  /** The run that last requested the range. */
  readonly runId?: string | undefined;
  /** The epoch of the source's chain when the range was requested. */
  readonly epoch?: number | undefined;
  /** When the source last returned exactly the stored rows. */
  readonly checkedAt?: Micros;
  /**
   * True if the object is lost, damaged or unreadable, so that the range is requested
   * again.
   */
  readonly isFaulty?: boolean;
  /** Whether the range's rows are in the warehouse. */
  readonly isLoaded?: boolean;
  /**
   * The facts about the object in the segment's row; undefined if the range has no
   * object.
   */
  readonly content?: SegmentContent | undefined;
}

/** The facts about a segment's rows that the catalog records. */
export interface SegmentContent {
  /** The size of the plain CSV in bytes. */
  readonly bytes: bigint;
  /** The additive digest of all rows, as 64 hex digits. */
  readonly digest: string;
  /** The row encoding that the sums were computed over. */
  readonly rowForm: string;
  /** The column names in the CSV's header line. */
  readonly columns: readonly string[];
}

/**
 * A range that becomes known. If it has no object, the source has just reported that it
 * has no entries.
 */
export const newCoverage = z.object({
  /** The asset of the range; null stands for every asset. */
  assetId: id.nullable(),
  from: instant,
  /** The end of the range, exclusive. */
  to: instant,
  open: z.boolean(),
  sides: z.enum(['from', 'both', 'unknown']),
  objectKey: z.string().nullish(),
  tail: tailSum.nullish(),
  checkedAt: instant.optional(),
});
export type NewCoverage = Readonly<z.output<typeof newCoverage>>;

/**
 * Reads the known ranges of parties, sorted by time: all of them, or those that overlap
 * one asset. Parties without known ranges are left out.
 */
export async function readCoverages(
  db: Database,
  partyIds: readonly string[],
  assetId?: string,
): Promise<ReadonlyMap<string, readonly Coverage[]>> {
  const asset = assetId ?? null;
  const ranges = statement(COVERAGE_COLUMNS)`
    select c.party_id as "partyId", coverage_id as "coverageId", c.asset_id as "assetId",
      c.from_time as "from", c.to_time as "to", c.open, sides, object_key as "objectKey",
      coalesce(rows, 0) as rows, tail, c.run_id as "runId", epoch, checked_at as "checkedAt",
      quarantine_reason is not null as "isFaulty", loaded_at is not null as "isLoaded",
      bytes, digest, row_form as "rowForm", columns
    from mirror.coverage c left join mirror.segments using (segment_id)
    where c.party_id = any(${[...partyIds]}::text[])
      and (${asset}::text is null or c.asset_id is null or c.asset_id = ${asset}::text)
    order by c.from_time, c.asset_id`;
  const rows = await readRows(db, 'read the coverage of ledgers', ranges);
  const byParty = Map.groupBy(rows, ({ partyId }) => partyId);
  return new Map(
    [...byParty].map(([partyId, known]) => [partyId, known.map(coverageOf)]),
  );
}

/** Columns of `readCoverages`; the last four are null if the range has no segment. */
const COVERAGE_COLUMNS = {
  partyId: 'text',
  coverageId: 'bigint',
  assetId: 'text?',
  from: 'instant',
  to: 'instant',
  open: 'boolean',
  sides: typed<NewCoverage['sides']>('text'),
  objectKey: 'text?',
  rows: 'bigint',
  tail: 'json?',
  runId: 'uuid?',
  epoch: 'int?',
  checkedAt: 'instant',
  isFaulty: 'boolean',
  isLoaded: 'boolean',
  bytes: 'bigint?',
  digest: 'text?',
  rowForm: 'text?',
  columns: 'text[]?',
} as const;

function coverageOf(row: RowOf<typeof COVERAGE_COLUMNS>): Coverage {
  return {
    coverageId: row.coverageId,
    assetId: row.assetId ?? undefined,
    from: readInstant(row.from),
    to: readInstant(row.to),
    open: row.open,
    sides: row.sides,
    objectKey: row.objectKey ?? undefined,
    rows: row.rows,
    tail: row.tail === null ? undefined : tailSum.parse(row.tail),
    runId: row.runId ?? undefined,
    epoch: row.epoch ?? undefined,
    checkedAt: readInstant(row.checkedAt),
    isFaulty: row.isFaulty,
    isLoaded: row.isLoaded,
    content: contentOf(row),
  };
}

/**
 * Returns the facts recorded about the segment; undefined if the range has no segment.
 */
function contentOf(
  row: RowOf<typeof COVERAGE_COLUMNS>,
): SegmentContent | undefined {
  const { bytes, digest, rowForm, columns } = row;
  if (
    bytes === null ||
    digest === null ||
    rowForm === null ||
    columns === null
  ) {
    return undefined;
  }
  return { bytes, digest, rowForm, columns };
}

/**
 * Removes the old ranges, and marks their segments as superseded.
 * @returns how many of the removed rows existed before this run
 * @throws RetryableError `COVERAGE_CHANGED` if one of the ranges no longer exists
 */
export async function supersede(
  tx: Database,
  ids: readonly bigint[],
  runId?: string,
): Promise<bigint> {
  if (ids.length === 0) return 0n;
  const superseded = statement({ ranges: 'bigint', replaced: 'bigint' })`
    with removed as (
      delete from mirror.coverage where coverage_id = any(${ids.map(String)}::bigint[]) returning segment_id),
    gone as (
      update mirror.segments s set status = 'superseded', superseded_at = clock_timestamp()
      from removed where s.segment_id = removed.segment_id
      returning case when s.run_id = ${runId ?? null}::uuid then coalesce((s.evidence->>'replacedRows')::bigint, 0)
        else s.rows end as rows)
    select (select count(*) from removed) as ranges, (select coalesce(sum(rows), 0)::bigint from gone) as replaced`;
  const { ranges, replaced } = await readRow(
    tx,
    'replace coverage',
    superseded,
  );
  if (ranges !== BigInt(ids.length)) throw coverageChanged();
  return replaced;
}

/** The run, and the epoch of the source's chain, in which a range became known. */
type Origin = {
  readonly runId: string | null;
  readonly epoch?: number | undefined;
};

/**
 * Returns the row of a range, for `insertCoverage`.
 * @param segmentId the segment that holds the range's entries, if it has any
 */
export function coverageRow(
  partyId: string,
  origin: Origin,
  range: NewCoverage,
  segmentId?: bigint,
): object {
  const { runId, epoch } = origin;
  return {
    ...newCoverage.encode(range),
    partyId,
    runId,
    epoch,
    segmentId: segmentId?.toString(),
  };
}

/**
 * Records ranges.
 * @throws RetryableError `COVERAGE_CHANGED` if one of them overlaps a known range
 */
export async function insertCoverage(
  tx: Database,
  rows: readonly object[],
): Promise<void> {
  if (rows.length === 0) return;
  const insert = statement()`
    insert into mirror.coverage (party_id, asset_id, epoch, from_time, to_time, open, sides,
      segment_id, tail, run_id, checked_at)
    select "partyId", "assetId", epoch, "from", "to", open, sides, "segmentId", tail, "runId",
      coalesce("checkedAt", clock_timestamp())
    from jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) as given("partyId" text, "assetId" text,
      epoch int, "from" timestamptz, "to" timestamptz, open boolean, sides text, "segmentId" bigint,
      tail jsonb, "runId" uuid, "checkedAt" timestamptz)`;
  await guardOverlap(() => execute(tx, 'record coverage', insert));
}

const EXCLUSION_VIOLATION = 'DATABASE_23P01';

/**
 * Runs `work`, reporting a refusal by the triggers on overlapping ranges as
 * `COVERAGE_CHANGED`. They ensure that no range is covered twice; a refusal means that
 * the plan is out of date.
 */
export async function guardOverlap<Result>(
  work: () => Promise<Result>,
): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    throw errorCode(error) === EXCLUSION_VIOLATION
      ? coverageChanged(error)
      : error;
  }
}

export function coverageChanged(cause?: unknown): RetryableError {
  return new RetryableError(
    'Cannot publish: the coverage of the ledger has changed since it was planned ' +
      'on; it is planned again',
    { code: 'COVERAGE_CHANGED', ...(cause === undefined ? {} : { cause }) },
  );
}
