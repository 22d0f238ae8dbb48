/**
 * Statements that are written as SQL and declare their result columns. The row type
 * follows from the declaration. test/postgres/statements.int.test.ts prepares every
 * statement against a migrated database and compares the columns that Postgres reports
 * with the declared ones. docs/sql.md explains when and how to write one.
 */
import { type CompiledQuery, type RawBuilder, sql } from 'kysely';
import { builder } from './builder.ts';

/** The JavaScript type of each declared column type; see `EXACT_TYPES` in database.ts. */
interface ColumnValues {
  bigint: bigint;
  boolean: boolean;
  bytes: Buffer;
  float: number;
  /** `timestamptz`, as an RFC 3339 string. */
  instant: string;
  /** `int4` or `int2`. */
  int: number;
  /** `json` or `jsonb`, parsed; narrow it with `typed`, or validate it. */
  json: unknown;
  /** `numeric`, as a decimal string. */
  numeric: string;
  text: string;
  'text[]': string[];
  uuid: string;
  /** The result of a function that returns nothing. */
  void: string;
}

type TypeName = keyof ColumnValues;

/**
 * `?`: the value may be null. `!`: the table's column is nullable, but the statement
 * excludes such rows. Without a mark the value is never null, which the test rejects for
 * a nullable column.
 */
type ColumnText = TypeName | `${TypeName}?` | `${TypeName}!`;

declare const VALUE: unique symbol;
/** A declared column whose TypeScript type is narrower than its Postgres type implies. */
export type TypedColumn<Value> = string & { readonly [VALUE]: Value };

/** The result columns of a statement, by name. */
export type Columns = Readonly<
  Record<string, ColumnText | TypedColumn<unknown>>
>;

type ValueOf<Column> =
  Column extends TypedColumn<infer Value>
    ? Value
    : Column extends `${infer Type extends TypeName}?`
      ? ColumnValues[Type] | null
      : Column extends `${infer Type extends TypeName}!`
        ? ColumnValues[Type]
        : Column extends TypeName
          ? ColumnValues[Column]
          : never;

/** The row type of declared columns. */
export type RowOf<Declared extends Columns> = {
  readonly [Name in keyof Declared]: ValueOf<Declared[Name]>;
};

/**
 * A statement with its parameters, ready to be run by `readRows`, `readRow` or `execute`.
 */
export interface Statement<Row> {
  readonly columns: Columns;
  compile(): PreparedQuery<Row>;
}

/** A compiled statement. */
export interface PreparedQuery<Row> extends CompiledQuery<Row> {
  /**
   * The name under which each connection caches the statement's plan; if undefined, the
   * statement is planned each time.
   */
  readonly preparedAs?: string | undefined;
}

interface StatementOptions {
  /**
   * See `PreparedQuery`. At most 63 characters, and unique per statement text. Only
   * `poolRunner` supports it.
   */
  readonly preparedAs?: string;
}

/** Declares a column whose values have a narrower type: `typed<RunKind>('text')`. */
export function typed<Value>(column: ColumnText): TypedColumn<Value> {
  return column as string as TypedColumn<Value>;
}

/** Builds a statement: `` statement({ partyId: 'text' })`select … as "partyId" …` ``. */
export function statement<const Declared extends Columns = Columns>(
  columns?: Declared,
  { preparedAs }: StatementOptions = {},
): StatementTag<RowOf<Declared>> {
  return (text, ...values) => {
    const fragment: RawBuilder<RowOf<Declared>> = sql(text, ...values);
    return {
      columns: columns ?? {},
      compile: () => ({ ...fragment.compile(builder), preparedAs }),
    };
  };
}

/**
 * Writes the select list that yields the declared columns: each is the table's column of
 * the same name in snake case, or the SQL expression given for it.
 */
export function selectList<Declared extends Columns>(
  columns: Declared,
  expressions?: Readonly<Partial<Record<keyof Declared & string, string>>>,
): RawBuilder<unknown> {
  return sql.raw(selectText(Object.keys(columns), expressions ?? {}));
}

/** Returns the text of a select list; see `selectList`. */
export function selectText(
  names: readonly string[],
  expressions: Readonly<Partial<Record<string, string>>>,
): string {
  return names
    .map((name) => `${expressions[name] ?? toSnakeCase(name)} as "${name}"`)
    .join(', ');
}

function toSnakeCase(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** @param values parameters, or fragments made with Kysely's `sql` */
type StatementTag<Row> = (
  text: TemplateStringsArray,
  ...values: readonly unknown[]
) => Statement<Row>;
