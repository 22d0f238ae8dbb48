/** Known ranges of ledgers: the rows of `mirror.coverage`, read and written in one place. */
import { sql } from 'kysely';
import { z } from 'zod';
import { RetryableError } from '../errors/errors.ts';
import { type Micros, readInstant } from '../time/time.ts';
import { hex64, id, instant } from '../ledger/json-fields.ts';
import type { Manifest } from '../ledger/manifest.ts';
import type { Database } from '../postgres/database.ts';
import { readRow, readRows } from '../postgres/transaction.ts';

/** A range of a ledger that is known: a current segment, or proven to be empty. */
export interface Coverage {
  readonly coverageId: bigint;
  readonly assetId: string | undefined;
  readonly from: Micros;
  readonly to: Micros;
  readonly open: boolean;
  readonly sides: NewCoverage['sides'];
  readonly objectKey: string | undefined;
  readonly rows: bigint;
  readonly tail: TailSum | undefined;
  /** The run that asked for it last. */
  readonly runId?: string | undefined;
  /** Of the source's chain, when it was asked for. */
  readonly epoch?: number | undefined;
  readonly checkedAt?: Micros;
  /** Its object was found lost, damaged or unreadable: it is asked for again. */
  readonly isFaulty?: boolean;
  /** Its rows are in the warehouse. */
  readonly isLoaded?: boolean;
  /** Of the segment, where there is one. */
  readonly content?:
    | Readonly<Pick<Manifest, 'bytes' | 'digest' | 'rowForm' | 'columns'>>
    | undefined;
}

/** The sum of a range's last rows: what every continuation asks for again, to see that they still are there. */
export const tailSum = z.object({
  /** A whole second; the range's end is the coverage's. */
  from: instant,
  rows: z.int().nonnegative(),
  digest: hex64,
  rowForm: z.string(),
});
export type TailSum = z.output<typeof tailSum>;

/** A range that becomes known; without an object nothing lies in it, and the source was asked for it just now. */
export const newCoverage = z.object({
  /** null: every asset. */
  assetId: id.nullable(),
  from: instant,
  /** Exclusive. */
  to: instant,
  open: z.boolean(),
  sides: z.enum(['from', 'both', 'unknown']),
  objectKey: z.string().nullish(),
  tail: tailSum.nullish(),
  checkedAt: instant.optional(),
});
export type NewCoverage = Readonly<z.output<typeof newCoverage>>;

/** Known ranges of parties by time, in every asset or what overlaps one; parties of which nothing is known are left out. */
export async function readCoverages(
  db: Database,
  partyIds: readonly string[],
  assetId?: string,
): Promise<ReadonlyMap<string, readonly Coverage[]>> {
  const asset = assetId ?? null;
  const ranges = sql<CoverageRow>`
    select c.party_id as "partyId", coverage_id as "coverageId", c.asset_id as "assetId", c.from_time as "from",
      c.to_time as "to", c.open, sides, object_key as "objectKey", coalesce(rows, 0) as rows, tail, c.run_id as "runId",
      epoch, checked_at as "checkedAt", quarantine_reason is not null as "isFaulty", loaded_at is not null as "isLoaded",
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

type Texts = 'from' | 'to' | 'checkedAt';
type Nullable = 'assetId' | 'objectKey' | 'runId' | 'epoch';
type CoverageRow = Required<Omit<Coverage, Texts | Nullable | 'tail' | 'content'>> &
  Record<Texts, string> & { [Name in Nullable]: NonNullable<Coverage[Name]> | null } & {
    readonly partyId: string;
    readonly tail: unknown;
  } & ({ bytes: null } | NonNullable<Coverage['content']>);

function coverageOf({ tail, ...row }: CoverageRow): Coverage {
  return {
    ...row,
    assetId: row.assetId ?? undefined,
    from: readInstant(row.from),
    to: readInstant(row.to),
    objectKey: row.objectKey ?? undefined,
    tail: tail === null ? undefined : tailSum.parse(tail),
    runId: row.runId ?? undefined,
    epoch: row.epoch ?? undefined,
    checkedAt: readInstant(row.checkedAt),
    content: row.bytes === null ? undefined : row,
  };
}

/**
 * The old ranges and their segments go.
 * @returns how many rows of before the run go with them
 * @throws RetryableError `COVERAGE_CHANGED`
 */
export async function supersede(
  tx: Database,
  ids: readonly bigint[],
  runId?: string,
): Promise<bigint> {
  if (ids.length === 0) return 0n;
  const superseded = sql<{ ranges: bigint; replaced: bigint }>`
    with removed as (
      delete from mirror.coverage where coverage_id = any(${ids.map(String)}::bigint[]) returning segment_id),
    gone as (
      update mirror.segments s set status = 'superseded', superseded_at = clock_timestamp()
      from removed where s.segment_id = removed.segment_id
      returning case when s.run_id = ${runId ?? null}::uuid then coalesce((s.evidence->>'replacedRows')::bigint, 0)
        else s.rows end as rows)
    select (select count(*) from removed) as ranges, (select coalesce(sum(rows), 0)::bigint from gone) as replaced`;
  const { ranges, replaced } = await readRow(tx, 'replace coverage', superseded);
  if (ranges !== BigInt(ids.length)) throw coverageChanged();
  return replaced;
}

/** By which run, and in which epoch of the source's chain, a range became known. */
type Origin = { readonly runId: string | null; readonly epoch?: number | undefined };

/** The row of a range, for `insertCoverage`. @param segmentId of the object that holds its entries, where it has any */
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

/** @throws RetryableError `COVERAGE_CHANGED` */
export async function insertCoverage(
  tx: Database,
  rows: readonly object[],
): Promise<void> {
  if (rows.length === 0) return;
  await guardOverlap(() =>
    sql`
      insert into mirror.coverage (party_id, asset_id, epoch, from_time, to_time, open, sides, segment_id, tail, run_id,
        checked_at)
      select "partyId", "assetId", epoch, "from", "to", open, sides, "segmentId", tail, "runId",
        coalesce("checkedAt", clock_timestamp())
      from jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) as given("partyId" text, "assetId" text, epoch int,
        "from" timestamptz, "to" timestamptz, open boolean, sides text, "segmentId" bigint, tail jsonb, "runId" uuid,
        "checkedAt" timestamptz)`.execute(tx),
  );
}

const EXCLUSION_VIOLATION = '23P01';

/** The constraint is what makes double coverage impossible; meeting it means that the plan is outdated. */
export async function guardOverlap<Result>(work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    const isOverlap =
      error instanceof Error && 'code' in error && error.code === EXCLUSION_VIOLATION;
    throw isOverlap ? coverageChanged(error) : error;
  }
}

export function coverageChanged(cause?: unknown): RetryableError {
  return new RetryableError(
    'Cannot publish: the coverage of the ledger has changed since it was planned on; it is planned again',
    { code: 'COVERAGE_CHANGED', ...(cause === undefined ? {} : { cause }) },
  );
}
