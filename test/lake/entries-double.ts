/** Months of entries as the warehouse would give them to a build, without one. */
import { canonicalText, ENTRY_COLUMNS, type EntryColumn } from '../../src/ledger/canonical.ts';
import { hashText, RowDigest } from '../../src/ledger/digest.ts';
import type { LakeBooks, LakePartition } from '../../src/lake/ports.ts';

export type EntryRow = Readonly<Record<EntryColumn, string>> & {
  readonly party_id: string;
  readonly is_counted: boolean;
};

/** Values as they are summed: '' is none. Times are RFC 3339 with six digits. */
export function booksOf(rows: readonly EntryRow[], fingerprint = 'first'): LakeBooks {
  const months = Map.groupBy(rows, (row) => row.vega_time.slice(0, 7));
  const partitions = [...months.keys()]
    .toSorted()
    .map((month) => partitionOf(month, months.get(month) ?? [], fingerprint));
  return {
    exclusively: (work) =>
      work({
        partitions: () => Promise.resolve(partitions),
        slices: () => Promise.resolve([]),
        covered: async function* () {},
        rows: async function* ({ month = '' }) {
          await Promise.resolve();
          yield Buffer.from((months.get(month) ?? []).map(copyLine).join(''));
        },
      }),
    partitions: () => Promise.resolve(partitions),
  };
}

function partitionOf(month: string, rows: readonly EntryRow[], fingerprint: string): LakePartition {
  const sum = new RowDigest();
  for (const row of rows) {
    sum.add(
      hashText(
        canonicalText(
          ENTRY_COLUMNS.map((name) => row[name]),
          [],
        ),
      ),
    );
  }
  return { table: 'ledger_entries', month, fingerprint, rows: BigInt(rows.length), valuesDigest: sum.hex() };
}

function copyLine(row: EntryRow): string {
  const shown = (value: string): string => (value === '' ? '\\N' : value);
  const time = row.vega_time.replace('T', ' ').replace('Z', '');
  const [, quantity, ...rest] = ENTRY_COLUMNS.map((name) => shown(row[name]));
  const values = [row.party_id, time, quantity, '\\N', ...rest, '\\N', '1', row.is_counted ? 't' : 'f'];
  return `${values.join('\t')}\n`;
}
