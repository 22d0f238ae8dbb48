/**
 * Which rows count: an entry between two mirrored parties lies in both exports where the release sends both
 * sides. It counts in the sender's; in the receiver's only where the sender's ledger is not loaded for that
 * asset and instant. The rule of the view `mirror.exported_entries`.
 */
import { ENTRIES, type LakeColumn } from './columns.ts';

const COLUMNS = ENTRIES.map(({ name }) => `entry.${name}`).join(', ');

/** One row for each party, so that no entry is joined twice. */
export function rangesByParty(coverage: string): string {
  return `(select party_id as covered_party, list({from_time: from_time, to_time: to_time, asset_id: asset_id}) as ranges
    from ${coverage} group by party_id)`;
}

/** Whether the row `entry` counts, by ranges joined to its sender. */
export function isCounted(entry: string, ranges: string): string {
  return `case when ${entry}.side in ('from', 'both') or ${ranges} is null then true
    else not list_bool_or(list_transform(${ranges}, lambda r: r.from_time <= ${entry}.vega_time
      and r.to_time > ${entry}.vega_time and (r.asset_id is null or r.asset_id = ${entry}.asset_id))) end`;
}

/** What does not stand in the files of entries. */
export const MADE_WHERE_ASKED: readonly LakeColumn[] = [
  {
    name: 'is_counted',
    type: 'BOOLEAN',
    comment:
      'True for the one row that stands for an entry: the sender’s, or the receiver’s where the sender’s ledger is not loaded for that asset and instant. Not in the stored table; added by this page and by `query`',
  },
  {
    name: 'both_sides',
    type: 'BOOLEAN',
    comment:
      'Whether the release sent what the party receives as well. Not in the stored table; added by this page and by `query`',
  },
];

/** Entries with `MADE_WHERE_ASKED`, behind FROM. */
export function countedEntries(entries: string, coverage: string): string {
  const hasMonth = entries.includes(' as month') ? ', entry.month' : '';
  return `(select ${COLUMNS}${hasMonth}, ${isCounted('entry', 'covered.ranges')} as is_counted,
      entry.effect is not null or entry.effect_text is not null as both_sides
    from ${entries} entry left join ${rangesByParty(coverage)} covered
      on covered.covered_party = entry.account_from_party_id)`;
}
