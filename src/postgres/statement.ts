/**
 * Statements that are written as SQL, with their result columns declared as values. The
 * row type follows from the declaration, and test/postgres/statements.int.test.ts
 * prepares every statement against a migrated database and compares the columns that
 * Postgres reports with the declared ones. docs/sql.md explains when to write one, and
 * how.
 */
import { type CompiledQuery, type RawBuilder, sql } from 'kysely';
import { builder } from './builder.ts';

/** What a column of each declared type is read as; see `EXACT_TYPES` in database.ts. */
interface ColumnValues {
  bigint: bigint;
  boolean: boolean;
  bytes: Buffer;
  float: number;
  /** `timestamptz`, as RFC 3339 text. */
  instant: string;
  /** `int4` or `int2`. */
  int: number;
  /** `json` or `jsonb`, parsed; narrow it with `typed`, or validate it. */
  json: unknown;
  /** `numeric`, as decimal text. */
  numeric: string;
  text: string;
  'text[]': string[];
  uuid: string;
  /** The result of a function that returns nothing. */
  void: string;
}

type TypeName = keyof ColumnValues;

/**
 * `?`: the value may be null. `!`: the table's column takes null, and the statement
 * leaves such rows out. Without a mark the value is never null; the test refuses it for a
 * column that takes null.
 */
type ColumnText = TypeName | `${TypeName}?` | `${TypeName}!`;

declare const VALUE: unique symbol;
/** A declared column with a narrower TypeScript type than its Postgres type gives. */
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
   * The name under which each connection keeps its plan; undefined: it is planned each
   * time.
   */
  readonly preparedAs?: string | undefined;
}

interface StatementOptions {
  /**
   * See `PreparedQuery`; at most 63 characters, and different for each text. `poolRunner`
   * supports it.
   */
  readonly preparedAs?: string;
}

/** Declares a column whose values have a narrower type: `typed<RunKind>('text')`. */
export function typed<Value>(column: ColumnText): TypedColumn<Value> {
  return column as string as TypedColumn<Value>;
}

/** Writes a statement: `` statement({ partyId: 'text' })`select … as "partyId" …` ``. */
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

/** @param values parameters, or fragments made with Kysely's `sql` */
type StatementTag<Row> = (
  text: TemplateStringsArray,
  ...values: readonly unknown[]
) => Statement<Row>;
