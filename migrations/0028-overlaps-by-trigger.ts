/**
 * Refuses overlapping ranges by triggers that look up a party's ranges, in place of
 * exclusion constraints. Their GiST indexes lost entries in Postgres 18.4 when the first
 * page was split while several transactions inserted. The constraint then let overlapping
 * ranges pass. What is worse, the planner uses such an index for any search by party, and
 * the ranges that it had lost were missing: a ledger lost a part of its coverage, and was
 * requested again.
 *
 * Two transactions that insert overlapping ranges at the same moment do not see each
 * other's. The lease of an export excludes that: each publication holds the lock on the
 * export's row.
 */
import { type Kysely, sql } from 'kysely';

/** Whether ranges of one party overlap, for two rows of the same table. */
function overlap(one: string, other: string): string {
  return `${one}.party_id = ${other}.party_id
    and (${one}.asset_id is null or ${other}.asset_id is null or ${one}.asset_id = ${other}.asset_id)
    and ${one}.from_time < ${other}.to_time and ${other}.from_time < ${one}.to_time`;
}

/**
 * Statements that refuse an overlapping row of a table. They allow no sequential scan: a
 * session keeps the plan that was best while the table was empty.
 * @param id the table's primary key
 * @param columns the columns whose change may make rows overlap
 * @param isCounted condition on a row for it to count; by default every row does
 */
function refuseOverlaps(
  table: string,
  id: string,
  columns: string,
  isCounted?: (of: string) => string,
): readonly string[] {
  const only = (word: string, of: string): string =>
    isCounted === undefined ? '' : ` ${word} (${isCounted(of)})`;
  return [
    `create function mirror.refuse_overlapping_${table}() returns trigger
     language plpgsql set search_path = pg_catalog set enable_seqscan = off as $$
     begin
       if exists (
         select from mirror.${table} known
         where known.${id} <> new.${id} and ${overlap('known', 'new')}${only('and', 'known')}) then
         raise exclusion_violation using
           message = 'range overlaps a known range of the same ledger',
           detail = format('party %s, asset %s, from %s to %s', new.party_id,
             coalesce(new.asset_id, 'all'), new.from_time, new.to_time),
           schema = 'mirror', table = '${table}', constraint = '${table}_do_not_overlap';
       end if;
       return null;
     end $$`,
    `create trigger ${table}_do_not_overlap
     after insert or update of ${columns} on mirror.${table}
     for each row${only('when', 'new')}
     execute function mirror.refuse_overlapping_${table}()`,
  ];
}

/**
 * Removes what a broken index let pass. Of overlapping ranges, one with entries is kept,
 * and otherwise the older one. The others are no longer known, so the next nightly run
 * requests again whatever is then missing.
 */
const REPAIRS = [
  `delete from mirror.coverage c
   where exists (
     select from mirror.coverage k
     where ${overlap('k', 'c')} and k.coverage_id <> c.coverage_id
       and (k.segment_id is null, k.coverage_id) < (c.segment_id is null, c.coverage_id))`,
  `update mirror.segments s set status = 'superseded', superseded_at = clock_timestamp()
   where status = 'current'
     and not exists (select from mirror.coverage c where c.segment_id = s.segment_id)
     and exists (
       select from mirror.segments k
       where k.status = 'current' and k.segment_id <> s.segment_id and ${overlap('k', 's')})`,
];

const STATEMENTS = [
  'alter table mirror.coverage drop constraint coverage_party_id_text_range_tstzrange_excl',
  'alter table mirror.segments drop constraint segments_party_id_text_range_tstzrange_excl',
  ...REPAIRS,
  ...refuseOverlaps(
    'coverage',
    'coverage_id',
    'party_id, asset_id, from_time, to_time',
  ),
  ...refuseOverlaps(
    'segments',
    'segment_id',
    'party_id, asset_id, from_time, to_time, status',
    (of) => `${of}.status = 'current'`,
  ),
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
