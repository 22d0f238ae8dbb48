/**
 * The lake's tables: how the warehouse's rows are read, and which types its Parquet has. Amounts are
 * DECIMAL(38,0); one that does not fit is NULL there and stands whole in the text column beside it.
 */
import { isAmountColumn } from '../ledger/canonical.ts';
import { KNOWN_COLUMNS } from '../ledger/header.ts';
import type { LakeTable } from './ports.ts';

export interface LakeColumn {
  readonly name: string;
  readonly type: string;
  /** DuckDB expression over the columns sent, which are all text; absent: the column of the same name. */
  readonly from?: string;
}

interface TableShape {
  /** Names of the columns sent, in their order. */
  readonly sent: readonly string[];
  readonly format: string;
  readonly columns: readonly LakeColumn[];
  readonly order: string;
}

export const AMOUNT = 'DECIMAL(38,0)';
export const TIME = 'TIMESTAMP WITH TIME ZONE';

export const text = (name: string): LakeColumn => ({ name, type: 'VARCHAR' });
const integer = (name: string): LakeColumn => ({ name, type: 'INTEGER', from: `cast(${name} as INTEGER)` });
/** UTC wall-clock times are sent. */
const time = (name: string): LakeColumn => ({
  name,
  type: TIME,
  from: `cast(${name} as TIMESTAMP) at time zone 'UTC'`,
});
/** By way of HUGEINT: straight from text to DECIMAL, DuckDB takes hundreds of times as long. */
export const decimal = (name: string): string => `try_cast(try_cast(${name} as HUGEINT) as ${AMOUNT})`;
const amount = (name: string): readonly LakeColumn[] => [
  { name, type: AMOUNT, from: decimal(name) },
  { name: `${name}_text`, type: 'VARCHAR', from: `case when ${decimal(name)} is null then ${name} end` },
];

const ENTRY_COLUMNS = ['party_id', ...KNOWN_COLUMNS, 'extra', 'segment_id', 'is_counted'];

/** What Postgres writes the fastest. */
const COPY_TEXT = String.raw`delim = '\t', quote = '', escape = '', nullstr = '\N'`;
/** For texts that can hold anything. */
export const CSV = `delim = ',', quote = '"', escape = '"', nullstr = ''`;

export const TABLES: Readonly<Record<LakeTable, TableShape>> = {
  ledger_entries: {
    sent: ENTRY_COLUMNS,
    format: COPY_TEXT,
    columns: ENTRY_COLUMNS.flatMap((name) => {
      if (name === 'vega_time') return [time(name)];
      if (name === 'segment_id') return [{ name, type: 'BIGINT', from: 'cast(segment_id as BIGINT)' }];
      if (name === 'extra') return [{ name, type: 'VARCHAR', from: String.raw`replace(extra, '\\', '\')` }];
      if (name === 'is_counted') return [{ name, type: 'BOOLEAN', from: "is_counted = 't'" }];
      return isAmountColumn(name) ? amount(name) : [text(name)];
    }),
    order: 'vega_time, party_id',
  },
  parties: {
    format: CSV,
    sent: ['party_id', 'first_epoch', 'first_seen_at', 'last_seen_at', 'source_time', 'extra'],
    columns: [
      text('party_id'),
      integer('first_epoch'),
      time('first_seen_at'),
      time('last_seen_at'),
      time('source_time'),
      text('extra'),
    ],
    order: 'party_id',
  },
  checkpoints: {
    format: CSV,
    sent: ['epoch', 'at_block', 'hash', 'block_hash', 'copies', 'first_seen_at', 'extra'],
    columns: [
      integer('epoch'),
      { name: 'at_block', type: 'DECIMAL(20,0)', from: 'cast(at_block as DECIMAL(20,0))' },
      text('hash'),
      text('block_hash'),
      integer('copies'),
      time('first_seen_at'),
      text('extra'),
    ],
    order: 'epoch, at_block, hash, block_hash',
  },
};

export const LAKE_TABLES: readonly LakeTable[] = ['ledger_entries', 'parties', 'checkpoints'];

/** A string as a SQL literal. */
export function literal(value: string): string {
  return `'${value.replaceAll("'", "''")}'`;
}

/** Turns one file of rows into one Parquet file. */
export function parquetStatement(table: LakeTable, rowsPath: string, parquetPath: string): string {
  const { sent, format, columns, order } = TABLES[table];
  return `copy (
      select ${selected(columns)} from (
        select * from read_csv(${literal(rowsPath)}, header = false, auto_detect = false, ${format},
          new_line = '\\n', columns = {${declared(sent)}}))
      order by ${order})
    to ${literal(parquetPath)} (format parquet, compression zstd)`;
}

/** Columns of text, as `read_csv` is told of them. */
export function declared(names: readonly string[]): string {
  return names.map((name) => `${name}: 'VARCHAR'`).join(', ');
}

/** What stands behind SELECT. */
export function selected(columns: readonly LakeColumn[]): string {
  return columns.map(({ name, from }) => (from === undefined ? name : `${from} as ${name}`)).join(', ');
}

/**
 * A view over files, or an empty one of the same columns where there is none. Entries say their month by
 * `vega_time`: there, the month in a file's path is for engines that list folders.
 */
export function viewStatement(
  table: string,
  columns: readonly LakeColumn[],
  paths: readonly string[],
  hasMonth: boolean,
): string {
  const all = hasMonth ? [text('month'), ...columns] : columns;
  if (paths.length === 0) {
    const none = all.map(({ name, type }) => `cast(null as ${type}) as ${name}`).join(', ');
    return `create view ${table} as select ${none} where false`;
  }
  const month = hasMonth
    ? "hive_partitioning = true, hive_types = {'month': VARCHAR}"
    : 'hive_partitioning = false';
  return `create view ${table} as select ${all.map(({ name }) => name).join(', ')}
    from read_parquet([${paths.map(literal).join(', ')}], ${month})`;
}

/** Entries of one month, as they stand behind FROM. */
export function entriesOf(month: string): string {
  return `(select * from ledger_entries where ${isInMonth('vega_time', month)})`;
}

/** Whether the time lies in a month of UTC, which is the connection's zone. */
export function isInMonth(time: string, month: string): string {
  const start = `timestamptz '${month}-01 00:00:00+00'`;
  return `${time} >= ${start} and ${time} < ${start} + interval 1 month`;
}

/** Amounts below this can be added ten thousand million times before 38 digits run out. */
const SAFE_AMOUNT = '9999999999999999999999999999';

/**
 * `exact_sum(quantity, quantity_text)`: the sum to the last digit, whatever its size; 0 of nothing. The rare
 * amounts that DECIMAL cannot add up safely are added as text-backed integers, the others at full speed.
 */
export const EXACT_SUM = `create macro exact_sum(amount, amount_text) as (
  cast(cast(coalesce(sum(case when amount between -${SAFE_AMOUNT} and ${SAFE_AMOUNT} then amount end), 0) as varchar) as bignum)
  + coalesce(sum(case when amount between -${SAFE_AMOUNT} and ${SAFE_AMOUNT} then null
      else cast(coalesce(cast(amount as varchar), amount_text) as bignum) end), cast('0' as bignum)))`;
