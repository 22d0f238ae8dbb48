/**
 * Generates types for Kysely's query builder from the tables of the schema `mirror`, as
 * the catalog of a migrated database describes them. `npm run schema` writes them; a test
 * compares them.
 */
import type { Pool } from 'pg';

interface CatalogColumn {
  readonly relation: string;
  readonly column: string;
  readonly type: string;
  readonly isNullable: boolean;
  readonly hasDefault: boolean;
  readonly isAlwaysGenerated: boolean;
  /** The values that a check constraint allows, if it enumerates them. */
  readonly values: readonly string[] | null;
}

/**
 * Reads the columns. Views are left out, because only analysts read them, and so are
 * partitions, whose names depend on the data.
 */
const COLUMNS = `
  select c.relname::text as relation, attname::text as column,
    format_type(atttypid, null) as type, not attnotnull as "isNullable",
    atthasdef or attidentity <> '' as "hasDefault",
    attidentity = 'a' or attgenerated <> '' as "isAlwaysGenerated",
    (select array_agg(found[1])
       from pg_constraint k, regexp_matches(pg_get_constraintdef(k.oid), '''([^'']*)''::text', 'g') found
      where k.conrelid = c.oid and k.contype = 'c' and k.conkey = array[a.attnum]
        and pg_get_constraintdef(k.oid) ~ ('^CHECK \\(\\(' || attname || ' = ANY \\(ARRAY\\[[^]]*\\]\\)\\)\\)$')) as values
  from pg_class c join pg_attribute a on attrelid = c.oid and attnum > 0 and not attisdropped
  where relnamespace = 'mirror'::regnamespace and relkind in ('r', 'p') and not relispartition
  order by relname, attnum`;

/** The type of a value when it is read, and when it is written if that differs. */
interface ValueType {
  readonly read: string;
  readonly write?: string;
}

/**
 * The types that the parsers in src/postgres/database.ts return. JSON is written as text.
 */
const VALUE_TYPES: Readonly<Record<string, ValueType>> = {
  bigint: { read: 'bigint', write: 'bigint | string' },
  boolean: { read: 'boolean' },
  'character varying': { read: 'string' },
  bytea: { read: 'Buffer' },
  date: { read: 'Date', write: 'string' },
  'double precision': { read: 'number' },
  integer: { read: 'number' },
  jsonb: { read: 'unknown', write: 'string' },
  numeric: { read: 'string', write: 'string | bigint' },
  smallint: { read: 'number' },
  text: { read: 'string' },
  'text[]': { read: 'string[]', write: 'readonly string[]' },
  'timestamp with time zone': { read: 'string' },
  uuid: { read: 'string' },
};

const HEADER = `/**
 * Row types of the schema \`mirror\` for the query builder: int8 is bigint, timestamptz is RFC 3339 text,
 * and numeric is text. Written by 'npm run schema' from a migrated database; compared by a test.
 */
import type { ColumnType, GeneratedAlways } from 'kysely';

/** An insert must name the column, whose types for writing and for reading differ. */
type Required<Read, Write> = ColumnType<Read, Write, Write>;

/** An insert may leave the column out: it has a default, or takes null. */
type Optional<Read, Write = Read> = ColumnType<Read, Write | undefined, Write>;
`;

/** @param pool a database with all migrations */
export async function schemaTypes(pool: Pool): Promise<string> {
  const { rows } = await pool.query<CatalogColumn>(COLUMNS);
  const relations = Map.groupBy(rows, ({ relation }) => relation);
  const interfaces = [...relations].map(([relation, columns]) => {
    const lines = columns.map(
      (column) => `  ${column.column}: ${columnType(column)};`,
    );
    return `export interface ${interfaceName(relation)} {\n${lines.join('\n')}\n}\n`;
  });
  const entries = [...relations.keys()].map(
    (relation) => `  'mirror.${relation}': ${interfaceName(relation)};`,
  );
  const schema = `export interface Schema {\n${entries.join('\n')}\n}\n`;
  return [HEADER, ...interfaces, schema].join('\n');
}

/** Returns the name of a table's interface: `ledger_entries` → `LedgerEntriesTable`. */
function interfaceName(relation: string): string {
  const words = relation
    .split('_')
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1));
  return `${words.join('')}Table`;
}

function columnType(column: CatalogColumn): string {
  const known = VALUE_TYPES[column.type];
  if (known === undefined) {
    throw new TypeError(
      `${column.relation}.${column.column}: no TypeScript type is declared for ${column.type}`,
    );
  }
  const values = column.values?.map((value) => `'${value}'`).join(' | ');
  const nullable = (type: string): string =>
    column.isNullable && type !== 'unknown' ? `${type} | null` : type;
  const read = nullable(values ?? known.read);
  if (column.isAlwaysGenerated) return `GeneratedAlways<${read}>`;
  const isOptional = column.hasDefault || column.isNullable;
  const write = known.write ?? known.read;
  if (values !== undefined || write === known.read) {
    return isOptional ? `Optional<${read}>` : read;
  }
  return `${isOptional ? 'Optional' : 'Required'}<${read}, ${nullable(write)}>`;
}
