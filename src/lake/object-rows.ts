/**
 * A segment's object as rows of `ledger_entries`: the SQL that reads what the loader reads. It is made of the
 * loader's own tables (`src/ledger/encodings.ts`), and relies on the loader having accepted every row: it
 * says what a text means, not whether a release writes it. A test compares both, row by row.
 */
import { type Decode, DECODERS, decodeTime, type EntryColumn, isAmountColumn } from '../ledger/canonical.ts';
import {
  ACCOUNT_TYPE_PREFIX,
  ACCOUNT_TYPES,
  decodeAccountType,
  decodeId,
  decodeInteger,
  decodeTransferType,
  TRANSFER_TYPE_PREFIX,
  WORDS_BY_TEXT,
} from '../ledger/encodings.ts';
import { KNOWN_COLUMNS, layoutOf } from '../ledger/header.ts';
import { compressionOf } from '../ledger/object-keys.ts';
import type { LakeSlice } from './ports.ts';
import { CSV, decimal, declared, isInMonth, literal, TABLES } from './tables.ts';

/** What the statement reads and writes on the local disk. */
export interface ObjectPaths {
  readonly object: string;
  /** See LakeSnapshot.covered. */
  readonly covered: string;
  /** An empty folder for the files. */
  readonly files: string;
}

const ID_COLUMNS = KNOWN_COLUMNS.filter((name) => name !== 'effect' && DECODERS[name] === decodeId);

const SQL_OF: ReadonlyMap<Decode, (text: string) => string> = new Map([
  // Not by way of TIMESTAMP: that leaves the zone unheeded.
  [decodeTime, (text: string) => `cast(${text} as TIMESTAMPTZ)`],
  [decodeInteger, decimal],
  [decodeId, idSql],
  [decodeAccountType, accountTypeSql],
  [decodeTransferType, transferTypeSql],
]);

/** Of CSV read at once. DuckDB's own 32 MB fall out of the caches, which makes reading slower by a tenth. */
const BUFFER_BYTES = 4 * 2 ** 20;

const BYTES_PREFIX = String.raw`\x`;
/** Of an id in hex. */
const ID_BYTES = 64;
/** Longer texts are no words. */
const WORD_BYTES_MAX =
  Math.max(...[...WORDS_BY_TEXT.keys()].map((word) => word.length)) + BYTES_PREFIX.length;

/** The columns of `ledger_entries` that an object does not send. */
const DERIVED: Readonly<Record<string, (slice: LakeSlice) => string>> = {
  party_id: ({ partyId }) => literal(partyId),
  segment_id: ({ segmentId }) => segmentId.toString(),
  extra: () => 'null',
  is_counted: isCountedSql,
};

/**
 * Writes slices of one segment, each into a Parquet file, as the warehouse has their rows; says the path and
 * the rows of each file (`writtenFile` reads it). Releases that send both sides send rows in order of time;
 * those of the others are sorted here.
 */
export function objectStatement(slices: readonly [LakeSlice, ...LakeSlice[]], paths: ObjectPaths): string {
  const [slice] = slices;
  const { columns, sides } = layoutOf(slice.columns);
  const { columns: written, order } = TABLES.ledger_entries;
  const select = written.map(({ name, type }) => `cast(${writtenSql(name, slice)} as ${type}) as ${name}`);
  const isWanted = slices.map(({ month }) => `(${isInMonth('entry.vega_time', month)})`).join(' or ');
  const months = slices.map(
    ({ month }) => `when ${isInMonth('entry.vega_time', month)} then ${literal(month)}`,
  );
  // Sorting rows into files costs a fifth more: spared where there is one.
  const isOne = slices.length === 1;
  if (!isOne) select.push(`case ${months.join(' ')} end as month`);
  const target = isOne ? `${paths.files}/${fileName(slice.month)}` : paths.files;
  return `copy (
      select ${select.join(', ')}
      from (
        select ${columns.flatMap(readColumn).join(', ')}
        from read_csv(${literal(paths.object)}, header = true, auto_detect = false, ${CSV},
          compression = ${literal(compressionOf(slice.objectKey))}, buffer_size = ${BUFFER_BYTES}, columns = {${declared(columns)}})) entry
      left join (${coveredSql(paths.covered)}) covered on covered.party_id = entry.account_from_party_id
      where ${isWanted}
      ${sides === 'from' ? `order by ${order}` : ''})
    to ${literal(target)} (format parquet, compression zstd, return_stats${isOne ? '' : ', partition_by (month)'})`;
}

function fileName(month: string): string {
  return `month=${month}.parquet`;
}

/** One row of what `objectStatement` says. */
export function writtenFile(row: readonly unknown[]): { month: string; path: string; rows: bigint } {
  const [path, rows] = row;
  if (typeof path !== 'string' || typeof rows !== 'bigint') throw new Error('DuckDB says no file');
  return { month: /month=(\d{4}-\d{2})[^=]*$/.exec(path)?.[1] ?? '', path, rows };
}

/**
 * Whether ids of the file stand there in upper case: no release is known to write them so, and the statement
 * above leaves them. Parquet holds each id once for many rows, so that asking is cheaper there.
 */
export function strayIdsStatement(parquetPath: string): string {
  const isStray = ID_COLUMNS.map(
    (name) => `bool_or(strlen(${name}) = ${ID_BYTES} and ${name} <> lower(${name}))`,
  );
  return `select coalesce(${isStray.join(' or ')}, false) from read_parquet(${literal(parquetPath)})`;
}

/** An amount's text goes along: what has no place in DECIMAL is kept as it was sent. */
function readColumn(name: string): readonly string[] {
  const sql = SQL_OF.get(name === 'effect' ? decodeInteger : DECODERS[name as EntryColumn]);
  if (sql === undefined) throw new Error(`no SQL reads the column ${name}`);
  const value = `${sql(name)} as ${name}`;
  return isAmountColumn(name) ? [value, `${name} as ${name}_sent`] : [value];
}

function writtenSql(name: string, slice: LakeSlice): string {
  const derived = DERIVED[name];
  if (derived !== undefined) return derived(slice);
  const amount = name.endsWith('_text') ? name.slice(0, -'_text'.length) : undefined;
  if (!slice.columns.includes(amount ?? name)) return 'null';
  return amount === undefined ? `entry.${name}` : integerTextSql(`entry.${amount}`);
}

/** What DECIMAL did not take, without a plus and leading zeros. */
function integerTextSql(amount: string): string {
  const sent = `${amount}_sent`;
  return `case when ${amount} is null and ${sent} <> ''
    then (case when starts_with(${sent}, '-') then '-' else '' end) || ltrim(${sent}, '+-0') end`;
}

/** The rule of the view `mirror.exported_entries`; ranges are looked at where nothing else decides. */
function isCountedSql({ partyId }: LakeSlice): string {
  return `case when entry.account_from_party_id = ${literal(partyId)} or covered.party_id is null then true
    else not list_bool_or(list_transform(covered.ranges, lambda r: r.from_time <= entry.vega_time
      and r.to_time > entry.vega_time and (r.asset_id is null or r.asset_id = entry.asset_id))) end`;
}

/** One row for each party, so that no entry is joined twice. */
function coveredSql(path: string): string {
  const time = (name: string): string => `cast(${name} || '+00' as TIMESTAMPTZ)`;
  return `select party_id, list({from_time: ${time('from_time')}, to_time: ${time('to_time')}, asset_id: asset_id}) as ranges
    from read_csv(${literal(path)}, header = false, auto_detect = false, ${CSV},
      columns = {${declared(['party_id', 'asset_id', 'from_time', 'to_time'])}})
    group by party_id`;
}

/** Most ids are hex as they should be, and are not looked at: `strayIdsStatement` finds the others. */
function idSql(text: string): string {
  const bare = `lower(case when starts_with(${text}, ${literal(BYTES_PREFIX)}) then substring(${text}, ${BYTES_PREFIX.length + 1}) else ${text} end)`;
  return `case when strlen(${text}) = ${ID_BYTES} and not starts_with(${text}, ${literal(BYTES_PREFIX)}) then ${text}
    else nullif(case when strlen(${text}) > ${WORD_BYTES_MAX} then ${bare} else ${named(bare, WORDS_BY_TEXT, bare)} end, '') end`;
}

function accountTypeSql(text: string): string {
  return typeSql(text, ACCOUNT_TYPE_PREFIX, ACCOUNT_TYPES);
}

function transferTypeSql(text: string): string {
  return typeSql(text, TRANSFER_TYPE_PREFIX, new Map());
}

function typeSql(text: string, prefix: string, names: ReadonlyMap<number, string>): string {
  const number = `try_cast(${text} as INTEGER)`;
  const numbered = named(number, names, `'#' || cast(${number} as VARCHAR)`);
  return `case when ascii(${text}) between ascii('0') and ascii('9') then ${numbered}
    when starts_with(${text}, ${literal(prefix)}) then substring(${text}, ${prefix.length + 1})
    else nullif(${text}, '') end`;
}

/** The name of what `sql` says, or else `other`. */
function named(sql: string, names: ReadonlyMap<number | string, string>, other: string): string {
  if (names.size === 0) return other;
  const known = [...names].map(([key, name]) => {
    return `when ${typeof key === 'number' ? String(key) : literal(key)} then ${literal(name)}`;
  });
  return `case ${sql} ${known.join(' ')} else ${other} end`;
}
