/**
 * The lake's tables in Delta and Parquet: their schemas, their properties, and the SQL
 * that writes and reads their files.
 */
import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import { PermanentError } from '../../errors/errors.ts';
import {
  CHECKPOINTS,
  COVERAGE,
  ENTRIES,
  hasStatistics,
  type LakeColumn,
  type LakeTable,
  namesOf,
  PARTIES,
  plain,
  text,
} from './columns.ts';
import type { MetaData } from '../delta/actions.ts';
import { literal } from '../local/duckdb.ts';
import { SUMMARIES } from './summaries.ts';

export const LAKE_PREFIX = 'lake/';
const MONTH = text(
  'month',
  'Month of vega_time in UTC, e.g. 2023-05; the partition column',
);

interface TableShape {
  readonly description: string;
  readonly columns: readonly LakeColumn[];
  /**
   * Present if the table has no partitions. All other tables are partitioned by month.
   */
  readonly isWhole?: true;
}

export const SHAPES: Readonly<Record<LakeTable, TableShape>> = {
  ledger_entries: {
    description:
      'One row for each exported ledger entry; repeated rows are kept',
    columns: ENTRIES,
  },
  parties: {
    description: 'Every party ever seen',
    columns: PARTIES,
    isWhole: true,
  },
  checkpoints: {
    description: 'Every distinct checkpoint ever seen',
    columns: CHECKPOINTS,
    isWhole: true,
  },
  coverage: {
    description:
      'Which ledgers are loaded, and for which ranges: determines which rows of ' +
      'ledger_entries count',
    columns: COVERAGE,
    isWhole: true,
  },
  ...SUMMARIES,
};

/** Returns the table's columns, including its partition column. */
function columnsOf(table: LakeTable): readonly LakeColumn[] {
  const { columns, isWhole } = SHAPES[table];
  return isWhole ? columns : [...columns, MONTH];
}

/** Columns that are computed at query time and are not in the files of entries. */
const COMPUTED_COLUMNS: readonly LakeColumn[] = [
  plain(
    'is_counted',
    'BOOLEAN',
    'True for the one row that stands for an entry: the sender’s, or the ' +
      'receiver’s if the sender’s ledger is not loaded for that asset and instant. ' +
      'Not in the stored table; added by this page and by `query`',
  ),
  plain(
    'both_sides',
    'BOOLEAN',
    'Whether the release also sent what the party receives. Not in the stored ' +
      'table; added by this page and by `query`',
  ),
];

/** Returns the table's columns as a query sees them, including computed columns. */
export function queryColumns(table: LakeTable): readonly LakeColumn[] {
  return table === 'ledger_entries'
    ? [...columnsOf(table), ...COMPUTED_COLUMNS]
    : columnsOf(table);
}

export function rootOf(table: LakeTable): string {
  return `${LAKE_PREFIX}${table}`;
}

const DELTA_TYPES: Readonly<Record<string, string>> = {
  VARCHAR: 'string',
  BIGINT: 'long',
  INTEGER: 'integer',
  BOOLEAN: 'boolean',
  DATE: 'date',
  'TIMESTAMP WITH TIME ZONE': 'timestamp',
};

const field = z.looseObject({ name: z.string(), type: z.unknown() });
type Field = z.output<typeof field>;
const schemaShape = z.object({
  type: z.literal('struct'),
  fields: z.array(field),
});

function fieldsOf(table: LakeTable): readonly Field[] {
  return columnsOf(table).map(({ name, type, comment }) => ({
    name,
    type: DELTA_TYPES[type] ?? type.toLowerCase(),
    nullable: true,
    metadata: { comment },
  }));
}

/**
 * Builds the metadata of a new table.
 * @param retentionMs how long a file is kept after the last version that refers to it
 */
export function newMetaData(table: LakeTable, retentionMs: number): MetaData {
  const shape = SHAPES[table];
  const measured = shape.columns.filter(hasStatistics);
  return {
    id: randomUUID(),
    name: table,
    description: shape.description,
    format: { provider: 'parquet', options: {} },
    schemaString: schemaText(fieldsOf(table)),
    partitionColumns: shape.isWhole ? [] : ['month'],
    configuration: {
      // Without this property, another engine's compaction would write statistics for
      // amounts, which some readers parse with too few digits.
      'delta.dataSkippingStatsColumns': measured
        .map(({ name }) => name)
        .join(','),
      'delta.deletedFileRetentionDuration': `interval ${Math.ceil(retentionMs / 1000)} seconds`,
    },
    createdTime: Date.now(),
  };
}

function schemaText(fields: readonly Field[]): string {
  return JSON.stringify({ type: 'struct', fields });
}

/**
 * Adds the columns that are missing from an existing table. Columns added by other
 * writers stay.
 * @returns undefined if no column is missing
 * @throws PermanentError `LAKE_TABLE_RAISED` if a column has a different type, or the
 *   partitions differ
 */
export function withNewColumns(
  table: LakeTable,
  metaData: MetaData,
): MetaData | undefined {
  const wanted = fieldsOf(table);
  const { fields } = schemaShape.parse(JSON.parse(metaData.schemaString));
  const existing = new Map(fields.map((column) => [column.name, column]));
  const differing = wanted.find(
    ({ name, type }) => existing.has(name) && existing.get(name)?.type !== type,
  );
  const partitions = SHAPES[table].isWhole ? '' : 'month';
  const hasOurPartitions = metaData.partitionColumns.join(',') === partitions;
  if (differing !== undefined || !hasOurPartitions) {
    const changed =
      differing === undefined ? 'partitions' : `column ${differing.name}`;
    throw new PermanentError(
      `Cannot use the table ${rootOf(table)}: another writer changed its ` +
        `${changed}; remove it and load again`,
      { code: 'LAKE_TABLE_RAISED', meta: { table, column: differing?.name } },
    );
  }
  const missing = wanted.filter(({ name }) => !existing.has(name));
  if (missing.length === 0) return undefined;
  return { ...metaData, schemaString: schemaText([...fields, ...missing]) };
}

/**
 * Number of rows per row group. Each thread keeps one row group in memory. Larger groups
 * would not fit into memory alongside a load, and spilling them makes a build take twice
 * as long.
 */
const ROW_GROUP_ROWS = 61_440;

/**
 * Returns the SQL that writes rows to a Parquet file. Field ids are column positions, so
 * that other table formats can describe the same files.
 */
export function copyStatement(
  table: LakeTable,
  select: string,
  path: string,
): string {
  const ids = SHAPES[table].columns
    .map(({ name }, index) => `${name}: ${index + 1}`)
    .join(', ');
  return `copy (${select}) to ${literal(path)} (format parquet, compression zstd,
    row_group_size ${ROW_GROUP_ROWS}, return_stats true, field_ids {${ids}})`;
}

/**
 * Returns SQL for a FROM clause that yields the rows of some files, with the table's
 * current columns. A column that is missing from an older file is NULL.
 * @param hasMonth whether to include the column `month`, which is read from the folder
 *   names
 */
export function rowsOf(
  table: LakeTable,
  paths: readonly string[],
  hasMonth: boolean,
): string {
  const all = hasMonth ? columnsOf(table) : SHAPES[table].columns;
  const none = all
    .map(({ name, type }) => `cast(null as ${type}) as ${name}`)
    .join(', ');
  if (paths.length === 0) return `(select ${none} where false)`;
  const partitions = hasMonth
    ? "hive_partitioning = true, hive_types = {'month': VARCHAR}"
    : 'hive_partitioning = false';
  const list = paths.map(literal).join(', ');
  const files = `read_parquet([${list}], union_by_name = true, ${partitions})`;
  return `(select ${namesOf(all)} from (
    select ${none} where false union all by name select * from ${files}))`;
}

/**
 * Returns SQL for a FROM clause that yields entries with their computed columns. If a
 * release exports both sides, an entry between two mirrored parties is in both exports.
 * It counts in the sender's export; in the receiver's export it counts only if the
 * sender's ledger is not loaded for that asset and instant. The view
 * `mirror.exported_entries` applies the same rule.
 */
export function countedEntries(entries: string, coverage: string): string {
  // Aggregate to one row per party before the join, so that no entry appears twice.
  return `(select entry.*,
      case when entry.side in ('from', 'both') or covered.ranges is null then true
        else not list_bool_or(list_transform(covered.ranges, lambda r: r.from_time <= entry.vega_time
          and r.to_time > entry.vega_time and (r.asset_id is null or r.asset_id = entry.asset_id))) end as is_counted,
      entry.effect is not null or entry.effect_text is not null as both_sides
    from ${entries} entry left join (
      select party_id as covered_party, list({from_time: from_time, to_time: to_time, asset_id: asset_id}) as ranges
        from ${coverage} group by party_id) covered
      on covered.covered_party = entry.account_from_party_id)`;
}
